// Launches: runs what the negotiator launches, as allreduces of the engine's group.
//
// The calls follow from what all ranks know, so they are the same on each: tensors that follow each other in the memory of
// every rank are one range, which is cut into pieces of even size; others are a grouped allreduce. A rank that takes part with zeros
// for some tensor uses other memory for the whole launch. Over several hosts the allreduce encodes what has a 16-bit wire, piece by piece
// while others travel. On one host it is encoded as a whole into memory of its own (wire.h), when it is its turn and the results of
// its last launch are there, and decoded when all of the launch has ended. Of tables the ranks first count their rows (row_exchange.h);
// as what follows has its place right behind that on every rank, nothing else begins before the counts are here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "groupcomm/gradient/inbox.h"
#include "groupcomm/gradient/kind.h"
#include "groupcomm/gradient/launch_memory.h"
#include "groupcomm/gradient/row_exchange.h"
#include "groupcomm/gradient/rows.h"
#include "groupcomm/gradient/wire.h"
#include "runtime/group/group.h"

namespace aiacc::gradient {

class Launches final : private GroupOperation::Observer {
 public:
  // For the timeline (trace.h); zero if it is not traced.
  struct PartTimes {
    Instant submitted{}, packed{}, negotiating{};
  };
  struct Times {
    Instant launched{};             // set by the engine: the others are wanted
    Instant encoding{}, encoded{};  // for the 16-bit wire
    Instant began{}, ended{};       // its first allreduce, and its last
    Instant landing{};
  };
  struct Part {
    std::uint32_t index = 0;          // agreed
    bool mine = true;                 // else this rank contributes zeros
    Inbox::Tensor* tensor = nullptr;  // null: this rank has not added it
    std::size_t bytes = 0;            // of a table: of this rank's rows as they travel, once that is known
    std::uint64_t table_rows = 0;
    bool owed = false;          // some rank gave zeros: a follow-up brings the rest
    std::byte* data = nullptr;  // where its result is: the tensor's place, or in `other`
    std::size_t wire_at = 0;    // on the 16-bit wire: where it begins there, and by which power of two it is multiplied
    int exponent = 0;
    bool out_of_range = false;  // on every rank: there is no result, and the slot is as it was
    bool not_finite = false;    // on every rank: the result
    Rows rows;                  // of a table: the result
    PartTimes times;
    bool copied_out = false;
  };
  struct Flight {
    Kind kind;
    std::uint64_t serial = 0;
    bool follow_up = false;
    bool in_a_row = false;  // on every rank
    std::vector<Part> parts;
    std::vector<std::byte> other;
    Codec codec = Codec::kNone;  // of its allreduces, which span hosts
    std::optional<DType> wire;   // on one host: of this launch, once it is prepared
    LaunchMemory::Piece memory;
    std::unique_ptr<RowExchange> rows;  // of tables
    std::size_t piece_bytes = 0;        // larger ranges are cut by it
    const inter::AlgorithmInfo* preferred = nullptr;
    std::uint64_t pass = 0;  // of the schedule, that it ends
    bool vote = false;       // no gradients: numbers of which each rank gets the maximum, in `other`
    std::size_t calls = 0;   // that have not ended
    bool prepared = false;   // its calls are in the queue, or begun
    Times times;
  };
  class Owner {
   public:
    // In the order of launch().
    virtual void launch_ended(Flight& flight) = 0;
    // What each rank gave.
    virtual void exchange_ended(std::span<const std::vector<std::byte>> payloads) = 0;
    // Before launches that came after the vote end, even if one before is kept back.
    virtual void vote_ended(std::span<const std::byte> most) = 0;
    // A call has failed, and the group is over.
    virtual void launches_failed(const std::exception_ptr& error) noexcept = 0;
    // A call has ended, and another launch may find room. `reduces`: it was part of a launch, and no exchange or vote.
    virtual void call_ended(bool reduces) noexcept = 0;
    // The last call that was running has ended, and no other has begun.
    virtual void nothing_runs() noexcept = 0;
    // A launch that has ended, and those after it, are kept back for now.
    virtual bool is_held(const Flight& flight) const noexcept = 0;

   protected:
    ~Owner() = default;
  };

  Launches(Group& group, Owner& owner, int in_flight, Duration timeout, bool looks);
  ~Launches();
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  // All on the lane's thread.
  void launch(std::unique_ptr<Flight> flight, const std::string& name);
  // Gives `payload` to all ranks. Comes after all that was launched before, on every rank.
  void exchange(std::vector<std::byte> payload);
  // Each 64-bit number becomes the maximum over the ranks. Takes part beside what is in flight.
  void vote(std::span<const std::uint64_t> numbers);
  // From what begins now on.
  void set_in_flight(int in_flight) noexcept { in_flight_ = static_cast<std::size_t>(std::max(in_flight, 1)); }
  // From what is launched now on; null: as selection chooses.
  void prefer(const inter::AlgorithmInfo* algorithm) noexcept { preferred_ = algorithm; }
  // They may be held no more.
  void settle();
  // Drops what has not begun.
  void drop_queue() noexcept { queue_.clear(); }
  // Of launches that have not ended, and are no follow-ups.
  template <class Fn>
  void for_each_part(Fn&& fn) {
    for (const auto& flight : flights_) {
      if (!flight->follow_up) std::for_each(flight->parts.begin(), flight->parts.end(), fn);
    }
  }
  // Another launch would begin at once.
  bool has_room() const noexcept {
    return queue_.empty() && !exchanging_ && !failed_ && running_.size() - votes_running_ < in_flight_;
  }
  bool running() const noexcept { return !running_.empty(); }
  bool empty() const noexcept { return flights_.empty(); }
  // Waits until nothing runs.
  Task<void> finish();
  std::uint64_t calls() const noexcept { return calls_; }

 private:
  struct Queued {
    Flight* flight;  // null: the exchange
    Call call;
    Buffer send, recv;
    std::vector<Tensor> tensors;  // of a grouped call
    std::string name;
    bool is_place = false;  // no call: those of the launch come here when it is their turn
  };
  struct Running {
    std::unique_ptr<GroupOperation> operation;
    Flight* flight;
    std::size_t bytes;
    bool ended = false;
  };
  struct Reap final : Job {
    explicit Reap(Launches& of) : launches(of) {}
    void run() noexcept override { launches.reap(); }
    Launches& launches;
  };

  void operation_ended(GroupOperation& operation) noexcept override;
  void note(Flight* flight, Instant Times::*what) const noexcept;
  static bool is_encoded_here(const Flight& flight) noexcept {
    return flight.kind.wire && flight.codec == Codec::kNone;
  }
  static Reduction reduction_of(const Flight& flight) noexcept;
  bool is_grouped(const Flight& flight) const noexcept;
  std::deque<Queued> calls_of(Flight& flight, const std::string& name);
  std::deque<Queued> in_pieces(Flight& flight, std::byte* data, std::size_t bytes, const Reduction& reduction,
                               const std::string& name);
  std::deque<Queued> grouped(Flight& flight, const std::string& name);
  Queued empty_call(Flight& flight, const std::string& name) const;
  void place_elements(Flight& flight);
  void count_rows(Flight& flight, const std::string& name);
  std::deque<Queued> move_rows(Flight& flight, const std::string& name);
  void take_rows(Flight& flight);
  bool has_last_results(const Flight& flight) const;
  bool can_prepare(const Flight& flight) const;
  void prepare(Queued turn);
  std::deque<Queued> encode(Flight& flight, const std::string& name);
  void encode(Flight& flight);
  void land(Flight& flight);
  void land(const Flight& flight, Part& part);
  bool may_begin(const Queued& next) const noexcept;
  void start_more() noexcept;
  void start(Queued queued);
  void run(Flight* flight, const Call& call, Buffer send, Buffer recv, std::string name);
  void reap() noexcept;
  void go_on_exchanging();

  Group& group_;
  Owner& owner_;
  std::size_t in_flight_;
  const inter::AlgorithmInfo* preferred_ = nullptr;
  Duration timeout_;
  const bool looks_;  // for results that are not finite
  const bool spans_hosts_;
  const bool alone_;  // no rank shares its host with another one
  WireCodec codec_;
  WireScales scales_;
  LaunchMemory memory_;
  std::deque<Queued> queue_;
  std::deque<std::unique_ptr<Flight>> flights_;
  std::list<Running> running_;
  std::size_t votes_running_ = 0;
  Reap reap_{*this};
  std::uint64_t calls_ = 0;
  bool failed_ = false;
  bool settling_ = false;
  Event quiet_;

  // The exchange that is at work, or waits in the queue.
  bool exchanging_ = false;
  std::vector<std::byte> payload_;
  std::vector<std::uint64_t> sizes_;
  std::uint64_t size_ = 0;
  std::vector<std::byte> payloads_;
  std::vector<Extent> blocks_;
  int exchange_step_ = 0;
};

}  // namespace aiacc::gradient

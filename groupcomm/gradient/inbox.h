// Inbox: the tensors of this rank, and what its user's calls bring to the lane.
//
// Calls of the user, on any thread, put what they bring into the inbox under its mutex; the lane takes it out. A submission
// wakes the lane only when there is enough to begin a round with, or once a millisecond: until then the rank that computes is
// left alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/config.h"
#include "base/task/lane.h"
#include "groupcomm/gradient/kind.h"
#include "groupcomm/gradient/rows.h"
#include "groupcomm/gradient/slots.h"
#include "groupcomm/gradient/submission.h"
#include "runtime/timeline/timeline.h"

namespace aiacc::gradient {

struct TensorOrder {
  std::string_view name;
  std::size_t count = 0;  // of elements, and of rows if the kind is that of a table
  Kind kind;
  std::optional<WireType> wire;  // none: the engine's
  std::int32_t priority = 0;
};

class Inbox {
 public:
  static constexpr std::size_t kMostTensors = 100'000;

  // What a rank has of a table. Of its user while the tensor is not outstanding; else `given` is read and `result` written by the lane.
  struct Table {
    Rows given;
    Rows result;  // empty after an error
  };
  struct Tensor {
    std::string name;
    std::uint32_t number = 0;
    std::size_t count = 0;
    std::size_t bytes = 0;  // of a table: of what was submitted last
    Kind kind;
    std::int32_t priority = 0;
    Slots::Slot slot;
    std::unique_ptr<Table> table;  // in place of a slot
    bool may_stay = false;         // in the caller's memory, if a submission brings it and takes it back there
    // Guarded by the inbox.
    bool removed = false;
    bool outstanding = false;
    bool left_out = false;  // its last submission has ended because a rank had left
    // Written by submit() before it is in the inbox, and then the lane's.
    std::byte* place = nullptr;  // where it is reduced: the slot, or the caller's memory
    void* out = nullptr;         // where the result is to be besides
    Submission* submission = nullptr;
    // For the timeline (trace.h): when it was submitted, zero if it is not traced, and when it was in the slot.
    Instant submitted{}, packed{};
    // The lane's.
    Instant negotiating{};  // in a round, for the timeline
    bool pending = false;   // submitted and not complete
    bool owed = false;      // launched with this rank's gradient and not complete: its follow-up completes it
  };
  struct Item {
    enum class What : std::uint8_t { kAdd, kReady, kFlush } what;
    std::uint32_t number = 0;
    Tensor* tensor = nullptr;
    bool finite = true;
  };
  class Owner {
   public:
    // On the lane's thread: take() has something.
    virtual void brought() noexcept = 0;

   protected:
    ~Owner() = default;
  };

  // `described` is the engine, for messages. A submission of `enough` bytes wakes the lane. `domain` as for Slots. `looks`: for
  // submissions that are not finite. `alone`: no rank shares its host with another one.
  Inbox(Lane& lane, Owner& owner, std::string described, std::size_t enough, HostDomain* domain, bool alone, bool looks,
        const Timeline& timeline);
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // --- any thread
  void add(std::span<const TensorOrder> orders, std::uint32_t* indices);
  void remove(std::span<const std::uint32_t> tensors);
  void* memory(std::uint32_t tensor);
  // Whether it is reduced in the caller's memory, if that is where a submission brings it and takes it back.
  bool in_place(std::uint32_t tensor);
  void submit(std::uint32_t tensor, const void* in, void* out, Submission* submission);
  // Rows of a table, which are copied. Throws kInvalidArgument if one is not of the table.
  void submit_rows(std::uint32_t tensor, RowsView rows, Submission* submission);
  // The result of the last submission of a table's rows, until the next one.
  RowsView rows(std::uint32_t tensor);
  void flush();
  // Whether the tensor was submitted and is not complete. If it is not outstanding, throws if the engine was freed, or is over for
  // another reason than that a rank has left it, or the tensor was left out because of that.
  bool outstanding(std::uint32_t tensor);
  // Somebody waits for a submission.
  void urge() noexcept;
  // Throws if the engine was freed, or is over.
  void check_usable();
  // The first error counts. Whoever hears of it first hears the error itself, later callers that the engine is over.
  void end(std::exception_ptr why);
  // A rank has left the engine: what is complete stays well, and what follows is refused with `why`. It may leave while this rank has
  // not yet looked at each result of its last step.
  void left(std::exception_ptr why);
  const std::string& describe() const noexcept { return described_; }
  std::uint64_t packed_bytes() const noexcept;

  // --- the lane's thread
  // So many bytes wake the lane from now on.
  void set_enough(std::size_t bytes);
  // What was brought since.
  struct Taken {
    bool urged = false;    // somebody has begun to wait since
    bool dropped = false;  // a tensor was outstanding for a moment, and its submission refused
  };
  Taken take(std::vector<Item>& items);
  bool somebody_waits() const noexcept;
  // Whatever has become of the engine.
  bool is_outstanding(std::uint32_t tensor) const noexcept;
  // The tensor may be submitted again. Returns its submission, if it has one. `left_out`: it ends because a rank has left.
  Submission* completed(Tensor& tensor, bool left_out) noexcept;
  // The user has heard why the engine is over.
  void told() noexcept;
  void close() noexcept;
  bool closed() const noexcept;
  // The lane has been asked to look, and has not yet.
  bool is_poked() const noexcept;
  // Gives the slots back; the lane is not asked any more.
  void clear() noexcept;

 private:
  struct Poke final : Job, RemoteJob {  // the lane looks into the inbox
    explicit Poke(Inbox& of) : inbox(of) {}
    void run() noexcept override { on_driver(); }
    void on_driver() noexcept override { inbox.poked(); }
    Inbox& inbox;
  };
  struct Alarm final : Timer {
    explicit Alarm(Inbox& of) : inbox(of) {}
    void expired() noexcept override { inbox.look_again(); }
    Inbox& inbox;
  };

  // Under mutex_.
  void check_usable_locked();
  [[noreturn]] void throw_over_locked();
  [[noreturn]] void throw_outstanding(const Tensor& tensor) const;
  Tensor& checked_locked(std::uint32_t tensor);
  Tensor& checked_locked(std::uint32_t tensor, bool is_table);
  Tensor& begin_submission(std::uint32_t tensor, bool is_table);
  void drop_submission(Tensor& tensor) noexcept;
  void drop_submission_locked(Tensor& tensor) noexcept;
  void hand_over(Tensor& tensor, bool finite, std::size_t copied, Submission* submission);
  void check_orders_locked(std::span<const TensorOrder> orders);
  void poke_locked() noexcept;

  void poked() noexcept;
  void look_again() noexcept;

  Lane& lane_;
  Owner& owner_;
  const std::string described_;
  const bool alone_;
  const bool looks_;
  const Timeline& timeline_;
  Poke poke_{*this};
  Alarm look_again_{*this};

  mutable std::mutex mutex_;  // guards what follows
  Slots slots_;
  std::deque<Tensor> tensors_;
  std::unordered_map<std::string, std::uint32_t> names_;
  std::vector<Item> items_;
  std::size_t enough_;
  std::size_t bytes_ = 0;
  bool urged_ = false;
  bool dropped_ = false;
  int urges_ = 0;             // submissions that somebody waits for; for a moment one may be counted as ended first
  bool poked_ = false;        // the lane will look into the inbox
  bool looks_again_ = false;  // it will soon, by its timer
  bool closed_ = false;
  std::exception_ptr over_;  // why the engine is over
  bool left_ = false;        // it is over because a rank has left
  bool over_told_ = false;   // to the user
  std::uint64_t packed_bytes_ = 0;
};

}  // namespace aiacc::gradient

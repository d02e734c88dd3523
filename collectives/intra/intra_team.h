// collectives/intra: algorithms among the ranks of one host over shared memory; one a file. Not here: the segment
// itself (transports/host).
//
// IntraTeam: a group's members on this host, as one of them sees them: their ranks in the host's domain, their control
// lines, and their staging memory. Members are counted from 0 in the order of their ranks in the group.
//
// A member's lines, all written by it alone:
//
//   arrivals   a ring: number, history, positions of its buffers, and a payload of at most 64 bytes, of which the first 32
//              are in the number's cache line
//   calls      as many: its call, for the error if members disagree; stored if it is not that of the line's last arrival
//   progress   counters (Word below), and the position of its staging memory
//
// Running ahead. In most calls every member waits for all, but in some (collectives/intra/one_shot.h) for the root alone or for
// nobody. So a member may be some calls ahead of another one, and has to know that what it overwrites has been read. Who has arrived
// at n + 1 has completed n and thus read every arrival n that it needed. A member publishes number n only after it has seen all
// arrive at n - ahead. Then all have read arrival n - ahead - 1, and the ring has more lines than that for the sake of errors:
//
// Agreement. The history of arrival n is a hash of the fingerprints of all calls up to n, so members that agree at n agree on all
// calls before it. A member compares histories whenever it has seen all arrive somewhere, and with the root's where it waits for
// that alone. So when it publishes n it knows that all agreed up to n - ahead. The others overwrite arrival m only when it has
// arrived at m + ahead and knows about m: what is needed to name the first call that differs is there. That takes 2 * ahead lines.
// Without running ahead, two lines: nobody completes n + 1 before all have arrived there.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/data/cpu_compute.h"
#include "base/prefetch.h"
#include "base/task/turn_queue.h"
#include "base/view.h"
#include "collectives/operation.h"
#include "collectives/plain_call.h"
#include "transports/host/host_domain.h"

namespace aiacc {

class IntraTeam {
 public:
  // Counters in the progress line; they grow over the life of the team.
  enum Word : std::uint32_t {
    kReleased = 0,  // of member 0: all members have arrived at this number
    kDone = 1,      // this member has completed the operation with this number
    kFilled = 2,    // chunks that this member has written into its slots
    kReduced = 3,   // chunks whose part of it this member has reduced
    kCopied = 4,    // chunks that it has copied from others' slots
    kStaging = 5,   // offset of its staging memory, plus 1
    kFailed = 6,    // number of the operation that failed here after this member had arrived at it
  };
  // Offset of a member's buffer in its slice; nullopt: private memory.
  using Place = std::optional<std::uint64_t>;

  static constexpr std::size_t kInlineBytes = 64;
  // Payloads up to this size are copied to a reserved place, from which all members read, and records of a user's operator up to the
  // size of a place (collectives/intra/one_shot.h).
  static constexpr std::size_t kEagerBytes = 16 << 10;
  static constexpr std::size_t kEagerPlaceBytes = 17 << 10;
  // How far members run ahead, in teams in which they do; each arrival costs two lines of every group. `bench/host/run --back-to-back`
  // measures it.
  static constexpr std::uint64_t kAhead = 16;
  // With more members, reading all lines by all members takes longer than a barrier through member 0. bench/host has measured only up
  // to 4 ranks on 2 cores; 16 follows from the quadratic cost (n² lines at 50 ns).
  static constexpr int kMostPolling = 16;
  // A pipeline through slots: see collectives/intra/staging.h.
  static constexpr std::size_t kSlots = 3;
  static constexpr std::size_t kSlotBytes = 128 << 10;

  // `domain_ranks[i]` is the rank in the domain of view->ranks_on_host_of(rank)[i]. A group may have several teams, which
  // share nothing; `index` is this one's.
  IntraTeam(HostDomain& domain, ViewPtr view, int rank, std::vector<int> domain_ranks, std::uint32_t index = 0);
  ~IntraTeam();
  IntraTeam(const IntraTeam&) = delete;
  IntraTeam& operator=(const IntraTeam&) = delete;

  // Returns when all members have claimed their lines. Call before any collective.
  Task<void> open(Stop& stop);
  // Returns when no member reads this one's lines or staging memory any more. Call after the last collective; without
  // it the destructor cannot free the staging memory, which then lasts as long as the segment.
  Task<void> close(Stop& stop);
  // For a caller that knows by other means that no member reads them any more.
  void set_closed() noexcept { closed_ = true; }

  HostDomain& domain() noexcept { return domain_; }
  Loop& loop() noexcept { return domain_.loop(); }
  int size() const noexcept { return size_; }
  int me() const noexcept { return me_; }
  int rank_of(int member) const noexcept { return ranks_[static_cast<std::size_t>(member)]; }
  int member_of(int rank) const noexcept {  // -1: not on this host
    const auto at = static_cast<std::size_t>(rank);
    return at < ranks_.size() && ranks_[at] == rank ? rank : find_member(rank);
  }
  int domain_rank(int member) const noexcept { return domain_ranks_[static_cast<std::size_t>(member)]; }
  // Whether all members of the group are on this host.
  bool is_whole_group() const noexcept { return is_whole_group_; }
  const View& view() const noexcept { return *view_; }

  // --- turns -----------------------------------------------------------------------------------------------------------
  TurnQueue& turns() noexcept { return turns_; }
  // After a failure members may disagree on numbers, so nothing more may run here.
  void fail() noexcept { failed_ = true; }
  // The same, by an operation: from now on its caller may use its memory, which other members may still read.
  void fail(std::uint64_t number) noexcept;
  // Throws kAborted if a member failed in this operation or before: what was read from it may not be what it had sent. Call
  // after the last read, before anybody is given the result.
  void require_whole(std::uint64_t number) const;
  bool failed() const noexcept { return failed_; }

  // --- arrivals --------------------------------------------------------------------------------------------------------
  struct Arrival {
    std::uint64_t fingerprint = 0;  // of the call
    Place send = {};
    Place recv = {};
    std::span<const std::byte> payload = {};  // at most kInlineBytes, in host memory
    const std::byte* private_send = nullptr;  // the address of a private buffer, for members that can read it
    bool on_host = true;  // the buffers are host memory, so this member can read others' memory into them
  };
  // Whether this member can read every member's process. Members may differ, so it is part of the arrival.
  bool can_pull() const noexcept { return can_pull_; }
  void set_can_pull(bool can) noexcept { can_pull_ = can; }  // for tests and benchmarks
  // The number of the next arrival.
  std::uint64_t next_number() const noexcept { return arrivals_ + 1; }
  // Whether members may be ahead of others: a call need not wait for members whose contributions it does not need.
  bool runs_ahead() const noexcept { return ahead_ > 1; }
  // Whether the next arrival may be published, in a team that runs ahead perhaps not before others have come closer: a member
  // that has not arrived at room_number(); size(): there is none.
  int first_too_far_behind() noexcept { return agreed_ + ahead_ > arrivals_ ? size() : look_for_room(); }
  bool has_room() noexcept { return first_too_far_behind() == size(); }
  std::uint64_t room_number() const noexcept { return next_number() - ahead_; }
  Task<void> await_room(Stop& stop);
  // The members before `from` have arrived there: the first that has not; size(): all have.
  int first_behind(std::uint64_t number, int from = 0) const noexcept {
    while (from < size() && has_arrived(from, number)) ++from;
    return from;
  }
  // Call::fingerprint(), which is mostly that of the call before.
  std::uint64_t fingerprint_of(const Call& call) noexcept {
    const std::uint64_t op = call.reduction.user == nullptr ? 0 : call.reduction.user->known_identity;
    if (call.kind == Collective::kBarrier || !PlainCall::describes_but_operator(call) ||
        (call.reduction.user != nullptr && op == 0)) {
      return call.fingerprint();
    }
    if (const PlainCall plain = PlainCall::of(call); plain != last_call_ || op != last_operator_) {
      last_call_ = plain;
      last_operator_ = op;
      last_fingerprint_ = call.fingerprint();
    }
    return last_fingerprint_;
  }
  // Publishes this member's arrival at the next operation, for which there is room, and returns its number.
  std::uint64_t arrive(const Call& call, const Arrival& arrival) noexcept;
  FlagRef arrival_flag(int member, std::uint64_t number) const noexcept {
    return {domain_rank(member), arrival_line(member, number), 0};
  }
  bool has_arrived(int member, std::uint64_t number) const noexcept {
    return arrival_word(member, number, 0).load(std::memory_order_acquire) >= number;
  }
  // For a member that has arrived:
  std::uint64_t history_of(int member, std::uint64_t number) const noexcept {
    return arrival_word(member, number, 1).load(std::memory_order_relaxed);
  }
  Place send_place_of(int member, std::uint64_t number) const noexcept {
    return place(arrival_word(member, number, 2));
  }
  Place recv_place_of(int member, std::uint64_t number) const noexcept {
    return place(arrival_word(member, number, 3));
  }
  // Null: the buffer is shared or empty, or the member cannot pull. Only of a call whose blocks may be read so (exchange_blocks.h).
  const std::byte* private_send_of(int member, std::uint64_t number) const noexcept {
    return reinterpret_cast<const std::byte*>(
        arrival_word(member, number, kPrivateWord).load(std::memory_order_relaxed));
  }
  bool pulls(int member, std::uint64_t number) const noexcept {
    return arrival_word(member, number, kPrivateWord + 1).load(std::memory_order_relaxed) != 0;
  }
  // Nobody changes it before this member has arrived at its next number.
  const std::byte* payload_of(int member, std::uint64_t number) const noexcept {
    return reinterpret_cast<const std::byte*>(&arrival_word(member, number, kPayloadWord));
  }
  // For a member that will read such a payload and waits for its number: the line's second half comes at the same time as the first.
  void prefetch_payload(int member, std::uint64_t number, std::size_t bytes) const noexcept {
    if (bytes > kBytesBesideNumber && bytes <= kInlineBytes) prefetch(&arrival_word(member, number, kPayloadWord + 4));
  }
  // For a member that has seen all arrive at its last number: takes the line of its next arrival from those that have read it,
  // so that the arrival's stores need not wait for it. Nobody reads it any more, and nobody polls it before the next call.
  void prefetch_next_arrival(std::size_t bytes) noexcept {
    ControlLine& line = own_arrival(arrivals_ + 1);
    prefetch_for_write(&line.word[0]);
    if (bytes > kBytesBesideNumber && bytes <= kInlineBytes) prefetch_for_write(&line.word[kPayloadWord + 4]);
  }
  // Whether all made the same calls up to this one; all must have arrived.
  bool agree(std::uint64_t number) noexcept {
    for (int member = 1; member < size(); ++member) {
      if (history_of(member, number) != history_of(0, number)) [[unlikely]]
        return disagree(number);
    }
    agreed_ = number;
    return disagreed_ == 0;
  }
  // Whether this member and that one did, which has arrived.
  bool agrees(int member, std::uint64_t number) noexcept {
    if (history_of(member, number) != history_of(me_, number)) [[unlikely]]
      return disagree(number);
    return disagreed_ == 0;
  }
  // Whether no difference is known.
  bool agreed_so_far() const noexcept { return disagreed_ == 0; }
  // Throws kMismatch, if it is found or known that members made different calls, with the same sentence on every member that has seen
  // all arrive. `from`: all of them must have arrived; or one member, which must have.
  static constexpr int kAll = -1;
  void require_agreement(std::uint64_t number, int from = kAll);
  void require_agreed_so_far() const;
  // The id of this operation's stores for the fence; never 0.
  std::uint64_t store_id(std::uint64_t number) const noexcept;

  // The number of an arrival that the fast path published and left to a coroutine (collectives/intra/small.h).
  std::optional<std::uint64_t> take_begun() noexcept { return std::exchange(begun_, std::nullopt); }
  void set_begun(std::uint64_t number) noexcept { begun_ = number; }
  bool has_begun() const noexcept { return begun_.has_value(); }

  // --- progress --------------------------------------------------------------------------------------------------------
  FlagRef progress_flag(int member, Word word) const noexcept {
    return {domain_rank(member), lines_[static_cast<std::size_t>(member)] + progress_line(), word};
  }
  std::uint64_t progress(int member, Word word) const noexcept {
    return seen_[static_cast<std::size_t>(member)][progress_line()].word[word].load(std::memory_order_acquire);
  }
  void publish(Word word, std::uint64_t value) noexcept {
    domain_.publish(lines_[static_cast<std::size_t>(me_)] + progress_line(), word, value);
  }
  // Chunks moved by all earlier pipelines: the same number on every member.
  std::uint64_t chunks_before() const noexcept { return chunks_; }
  void add_chunks(std::uint64_t chunks) noexcept { chunks_ += chunks; }

  // --- staging ---------------------------------------------------------------------------------------------------------
  // Allocates this member's staging memory on first use. Call before the arrival of the operation that uses it.
  void need_staging();
  // For a member that has seen an arrival of all members behind their need_staging(): from then on eager() throws nothing and asks
  // nothing of the domain.
  void map_staging() {
    for (int member = 0; member < size(); ++member) staging(member);
    staging_is_mapped_ = true;
  }
  bool staging_is_mapped() const noexcept { return staging_is_mapped_; }
  // What a member contributes to a call, if it is longer than a line.
  std::byte* eager(int member, std::uint64_t number) { return staging(member) + in_ring(number) * kEagerPlaceBytes; }
  // What it says of its blocks, in an operation at whose end all members wait for each other.
  std::byte* table(int member) { return staging(member) + ring_ * kEagerPlaceBytes; }
  std::byte* slot(int member, std::uint64_t chunk) {
    return table(member) + kTableBytes + chunk % kSlots * (kSlotBytes + kResultBytes);
  }
  // The part of a member's slot for its reduced results.
  std::byte* result_slot(int member, std::uint64_t chunk) { return slot(member, chunk) + kSlotBytes; }

  // Shared memory of this member for packed tensors; kept after its first use.
  Buffer pack_memory(std::size_t bytes);

  const CpuCompute& cpu() const noexcept { return cpu_; }
  // How the fast path waits for other members: first by so many polls, and then by so many that give up the core in between.
  struct Patience {
    int spins = 0;
    int yields = 0;
  };
  Patience patience() const noexcept { return patience_; }
  void set_patience(Patience patience) noexcept { patience_ = patience; }  // for tests and benchmarks

 private:
  // The lines of a member: the ring's arrivals, its calls, progress.
  std::uint32_t call_line() const noexcept { return ring_; }
  std::uint32_t progress_line() const noexcept { return 2 * ring_; }
  std::uint32_t lines() const noexcept { return 2 * ring_ + 1; }
  static constexpr std::uint32_t kPayloadWord = 4;
  static constexpr std::uint32_t kPrivateWord = kPayloadWord + kInlineBytes / 8;
  static constexpr std::size_t kBytesBesideNumber = 64 - 8 * kPayloadWord;  // in its cache line
  static constexpr std::size_t kResultBytes = kSlotBytes / 2;  // a member's part of a chunk; largest with two members
  static constexpr std::size_t kTableBytes = 32 << 10;
  static_assert(kTableBytes >= 8 * (1 + 2 * 1024), "two words for each member, of which there are at most 1024");
  std::size_t staging_bytes() const noexcept {
    return ring_ * kEagerPlaceBytes + kTableBytes + kSlots * (kSlotBytes + kResultBytes);
  }

  static Place place(const std::atomic<std::uint64_t>& word) noexcept {
    const std::uint64_t value = word.load(std::memory_order_relaxed);
    return value == 0 ? Place() : Place(value - 1);
  }
  std::uint32_t arrival_line(int member, std::uint64_t number) const noexcept {
    return lines_[static_cast<std::size_t>(member)] + in_ring(number);
  }
  const std::atomic<std::uint64_t>& arrival_word(int member, std::uint64_t number, std::uint32_t word) const noexcept {
    return seen_[static_cast<std::size_t>(member)][in_ring(number)].word[word];
  }
  ControlLine& own_arrival(std::uint64_t number) noexcept { return own_[in_ring(number)]; }
  std::uint32_t in_ring(std::uint64_t number) const noexcept {
    return static_cast<std::uint32_t>(number) & (ring_ - 1);
  }
  int find_member(int rank) const noexcept;
  int look_for_room() noexcept;
  bool disagree(std::uint64_t number) noexcept {
    if (disagreed_ == 0) disagreed_ = number;
    return false;
  }
  void describe(const Call& call, std::uint64_t fingerprint, std::uint64_t number) noexcept;
  CallSummary call_of(int member, std::uint64_t number) const noexcept;
  std::byte* staging(int member);

  HostDomain& domain_;
  ViewPtr view_;
  std::uint64_t key_;  // of its lines
  int me_;
  std::vector<int> domain_ranks_;
  const int size_;
  const bool is_whole_group_;
  std::span<const int> ranks_;
  std::vector<std::uint32_t> lines_;
  // Where they are in memory: a virtual call for each word that is read would be a third of a small call's instructions.
  std::vector<const ControlLine*> seen_;  // of each member, from open() on
  ControlLine* own_ = nullptr;
  std::uint64_t ahead_;                   // how many arrivals a member may publish that not all have come to
  std::uint32_t ring_;                    // lines of arrivals, a power of two
  std::vector<std::uint64_t> described_;  // the fingerprint of what each call line says; 0: unknown
  std::vector<std::byte*> staging_;       // of each member, once it is known
  HostRange my_staging_;
  HostRange my_packs_;

  TurnQueue turns_;
  bool failed_ = false;
  bool closed_ = false;
  bool staging_is_mapped_ = false;
  bool can_pull_ = true;
  std::uint64_t arrivals_ = 0;
  std::uint64_t history_ = 0;
  PlainCall last_call_;              // a barrier, which has no place here: none yet
  std::uint64_t last_operator_ = 0;  // its identity
  std::uint64_t last_fingerprint_ = 0;
  std::uint64_t agreed_ = 0;     // all have arrived there, and agreed
  std::uint64_t disagreed_ = 0;  // an arrival at which members were found not to agree; 0: none
  std::uint64_t chunks_ = 0;
  std::optional<std::uint64_t> begun_;
  CpuCompute cpu_;
  Patience patience_;
};

}  // namespace aiacc

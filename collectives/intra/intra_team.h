// collectives/intra: algorithms among the ranks of one host over shared memory; one a file. Not here: the segment
// itself (transports/host).
//
// IntraTeam: a group's members on this host, as one of them sees them: their ranks in the host's domain, their control
// lines, and their staging memory. Members are counted from 0 in the order of their ranks in the group.
//
// A member's lines, all written by it alone:
//
//   arrival 0, 1   alternately: number, fingerprint, positions of its buffers, and a payload of at most 64 bytes, of which
//                  the first 32 are in the number's cache line
//   call 0, 1      its call, for the error if members disagree; stored if it is not that of the line's last arrival
//   progress       counters (Word below), and the position of its staging memory
//
// Two arrival lines are enough. A member overwrites number n with number n + 2 only after it has completed n + 1.
// Nobody completes n + 1 before all have arrived at n + 1, and nobody arrives there before it has completed n and thus
// read every arrival n.
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
    kPullable = 6,  // number of the operation whose result part is complete in this member's own buffer
    kFailed = 7,    // number of the operation that failed here after this member had arrived at it
  };
  // Offset of a member's buffer in its slice; nullopt: private memory.
  using Place = std::optional<std::uint64_t>;

  static constexpr std::size_t kInlineBytes = 64;
  // Payloads up to this size are copied to a reserved place, from which all members read
  // (collectives/intra/one_shot.h).
  static constexpr std::size_t kEagerBytes = 64 << 10;
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
  int size() const noexcept { return static_cast<int>(domain_ranks_.size()); }
  int me() const noexcept { return me_; }
  int rank_of(int member) const noexcept { return ranks_[static_cast<std::size_t>(member)]; }
  int member_of(int rank) const noexcept;  // -1: not on this host
  int domain_rank(int member) const noexcept { return domain_ranks_[static_cast<std::size_t>(member)]; }
  // Whether all members of the group are on this host.
  bool is_whole_group() const noexcept { return size() == view_->size(); }
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
    std::uint64_t fingerprint = 0;
    Place send = {};
    Place recv = {};
    std::span<const std::byte> payload = {};  // at most kInlineBytes, in host memory
    // Addresses of private buffers, for members that can read them.
    const std::byte* private_send = nullptr;
    const std::byte* private_recv = nullptr;
    bool on_host = true;  // the buffers are host memory, so this member can read others' memory into them
  };
  // Whether this member can read every member's process. Members may differ, so it is part of the arrival.
  bool can_pull() const noexcept { return can_pull_; }
  void set_can_pull(bool can) noexcept { can_pull_ = can; }  // for tests and benchmarks
  // The number of the next arrival.
  std::uint64_t next_number() const noexcept { return arrivals_ + 1; }
  // Publishes this member's arrival at the next operation and returns its number.
  std::uint64_t arrive(const Call& call, const Arrival& arrival) noexcept;
  FlagRef arrival_flag(int member, std::uint64_t number) const noexcept {
    return {domain_rank(member), arrival_line(member, number), 0};
  }
  bool has_arrived(int member, std::uint64_t number) const noexcept {
    return arrival_word(member, number, 0).load(std::memory_order_acquire) >= number;
  }
  // For a member that has arrived:
  std::uint64_t fingerprint_of(int member, std::uint64_t number) const noexcept {
    return arrival_word(member, number, 1).load(std::memory_order_relaxed);
  }
  Place send_place_of(int member, std::uint64_t number) const noexcept {
    return place(arrival_word(member, number, 2));
  }
  Place recv_place_of(int member, std::uint64_t number) const noexcept {
    return place(arrival_word(member, number, 3));
  }
  // Null: the buffer is shared or empty, or the member cannot pull. Only for arrivals published by arrive().
  const std::byte* private_send_of(int member, std::uint64_t number) const noexcept {
    return reinterpret_cast<const std::byte*>(
        arrival_word(member, number, kPrivateWord).load(std::memory_order_relaxed));
  }
  const std::byte* private_recv_of(int member, std::uint64_t number) const noexcept {
    return reinterpret_cast<const std::byte*>(
        arrival_word(member, number, kPrivateWord + 1).load(std::memory_order_relaxed));
  }
  bool pulls(int member, std::uint64_t number) const noexcept {
    return arrival_word(member, number, kPrivateWord + 2).load(std::memory_order_relaxed) != 0;
  }
  // Copies `bytes` of it and what is behind them in the same words: at most kInlineBytes.
  void read_payload(int member, std::uint64_t number, std::size_t bytes, std::byte* into) const noexcept;
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
  // Throws kMismatch, with the same sentence on every member, if the members made different calls. All must have
  // arrived.
  void require_agreement(std::uint64_t number) const;
  bool agree(std::uint64_t number) const noexcept;
  // The id of this operation's stores for the fence; never 0.
  std::uint64_t store_id(std::uint64_t number) const noexcept;

  // The number of an arrival that the fast path published and left to a coroutine (collectives/intra/small.h).
  std::optional<std::uint64_t> take_begun() noexcept { return std::exchange(begun_, std::nullopt); }
  void set_begun(std::uint64_t number) noexcept { begun_ = number; }
  bool has_begun() const noexcept { return begun_.has_value(); }

  // --- progress --------------------------------------------------------------------------------------------------------
  FlagRef progress_flag(int member, Word word) const noexcept {
    return {domain_rank(member), lines_[static_cast<std::size_t>(member)] + kProgressLine, word};
  }
  std::uint64_t progress(int member, Word word) const noexcept {
    return seen_[static_cast<std::size_t>(member)][kProgressLine].word[word].load(std::memory_order_acquire);
  }
  void publish(Word word, std::uint64_t value) noexcept {
    domain_.publish(lines_[static_cast<std::size_t>(me_)] + kProgressLine, word, value);
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
  std::byte* eager(int member, std::uint64_t number) { return staging(member) + number % 2 * kEagerBytes; }
  // For a member that has arrived: while others are late, what it has staged comes from its core's cache.
  void prefetch_staged(int member, std::uint64_t number, std::size_t bytes) {
    const std::byte* const from = eager(member, number);
    for (std::size_t at = 0; at < bytes; at += 64) prefetch(from + at);
  }
  std::byte* slot(int member, std::uint64_t chunk) {
    return staging(member) + 2 * kEagerBytes + chunk % kSlots * (kSlotBytes + kResultBytes);
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
  static constexpr std::uint32_t kArrivalLine = 0;
  static constexpr std::uint32_t kCallLine = 2;
  static constexpr std::uint32_t kProgressLine = 4;
  static constexpr std::uint32_t kLines = 5;
  static constexpr std::uint32_t kPayloadWord = 4;
  static constexpr std::uint32_t kPrivateWord = kPayloadWord + kInlineBytes / 8;
  static constexpr std::size_t kBytesBesideNumber = 64 - 8 * kPayloadWord;  // in its cache line
  static constexpr std::size_t kResultBytes = kSlotBytes / 2;  // a member's part of a chunk; largest with two members
  static constexpr std::size_t kStagingBytes = 2 * kEagerBytes + kSlots * (kSlotBytes + kResultBytes);

  static Place place(const std::atomic<std::uint64_t>& word) noexcept {
    const std::uint64_t value = word.load(std::memory_order_relaxed);
    return value == 0 ? Place() : Place(value - 1);
  }
  std::uint32_t arrival_line(int member, std::uint64_t number) const noexcept {
    return lines_[static_cast<std::size_t>(member)] + kArrivalLine + static_cast<std::uint32_t>(number % 2);
  }
  const std::atomic<std::uint64_t>& arrival_word(int member, std::uint64_t number, std::uint32_t word) const noexcept {
    return seen_[static_cast<std::size_t>(member)][kArrivalLine + number % 2].word[word];
  }
  ControlLine& own_arrival(std::uint64_t number) noexcept { return own_[kArrivalLine + number % 2]; }
  void describe(const Call& call, std::uint64_t fingerprint, std::uint64_t number) noexcept;
  CallSummary call_of(int member, std::uint64_t number) const noexcept;
  std::byte* staging(int member);

  HostDomain& domain_;
  ViewPtr view_;
  std::uint64_t key_;  // of its lines
  int me_;
  std::vector<int> domain_ranks_;
  std::span<const int> ranks_;
  std::vector<std::uint32_t> lines_;
  // Where they are in memory: a virtual call for each word that is read would be a third of a small call's instructions.
  std::vector<const ControlLine*> seen_;  // of each member, from open() on
  ControlLine* own_ = nullptr;
  std::array<std::uint64_t, 2> described_{};  // the fingerprint of what each call line says; 0: unknown
  std::vector<std::byte*> staging_;           // of each member, once it is known
  HostRange my_staging_;
  HostRange my_packs_;

  TurnQueue turns_;
  bool failed_ = false;
  bool closed_ = false;
  bool staging_is_mapped_ = false;
  bool can_pull_ = true;
  std::uint64_t arrivals_ = 0;
  std::uint64_t chunks_ = 0;
  std::optional<std::uint64_t> begun_;
  CpuCompute cpu_;
  Patience patience_;
};

}  // namespace aiacc

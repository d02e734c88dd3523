// HostTeam: the members of a group on this host as one of them sees them: where they are in the host's memory, their
// control lines, and their staging memory. Members are counted from 0 in the order of their ranks in the group.
//
// A member's lines, all written by it alone:
//
//   arrival 0, 1   by turns: number, fingerprint, where its buffers are, and a payload of at most 64 bytes
//   call 0, 1      what it called, for the sentence when members disagree
//   progress       counters (Word below), and where its staging memory is
//
// Two arrival lines are enough. A member writes number n + 2 over number n; it has completed n + 1, which nobody does
// before all have arrived at n + 1, which nobody does before it has completed n and so has read every arrival n.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/data/cpu_compute.h"
#include "base/view.h"
#include "collectives/host/channel.h"
#include "collectives/host/turn_queue.h"
#include "collectives/operation.h"
#include "transports/host/host_domain.h"

namespace aiacc {

class HostTeam {
 public:
  // Counters in the progress line; they grow over the life of the team.
  enum Word : std::uint32_t {
    kReleased = 0,  // of member 0: all have arrived at this number
    kDone = 1,      // this member has finished the operation with this number
    kFilled = 2,    // chunks that this member has put into its slots
    kReduced = 3,   // chunks of which it has reduced its part
    kCopied = 4,    // chunks that it has taken out of others' slots
    kStaging = 5,   // offset of its staging memory, plus 1
    kPullable = 6,  // the operation with this number of which its part of the result stands in its own buffer
  };
  // Where a member's buffer is: in its slice, or where nobody else can reach it.
  using Place = std::optional<std::uint64_t>;

  static constexpr std::size_t kInlineBytes = 64;
  // Payloads up to here are copied to a place of their own and read by all at once (collectives/host/one_shot.h).
  static constexpr std::size_t kEagerBytes = 64 << 10;
  // A pipeline through slots: see collectives/host/staging.h.
  static constexpr std::size_t kSlots = 3;
  static constexpr std::size_t kSlotBytes = 128 << 10;

  // `domain_ranks[i]` is the rank in the domain of view->ranks_on_host_of(rank)[i].
  HostTeam(HostDomain& domain, ViewPtr view, int rank, std::vector<int> domain_ranks);
  ~HostTeam();
  HostTeam(const HostTeam&) = delete;
  HostTeam& operator=(const HostTeam&) = delete;

  // Returns when all members have their lines; before any collective.
  Task<void> open(Stop& stop);
  // Returns when no member reads this one's lines or staging memory any more; after the last collective. Without it the
  // destructor leaves the staging memory to the end of the segment.
  Task<void> close(Stop& stop);
  // The same is known from elsewhere.
  void set_closed() noexcept { closed_ = true; }

  HostDomain& domain() noexcept { return domain_; }
  Loop& loop() noexcept { return domain_.loop(); }
  int size() const noexcept { return static_cast<int>(domain_ranks_.size()); }
  int me() const noexcept { return me_; }
  int rank_of(int member) const noexcept { return ranks_[static_cast<std::size_t>(member)]; }
  int member_of(int rank) const noexcept;  // -1: not on this host
  int domain_rank(int member) const noexcept { return domain_ranks_[static_cast<std::size_t>(member)]; }
  // Of the group's members all are here.
  bool is_whole_group() const noexcept { return size() == view_->size(); }
  const View& view() const noexcept { return *view_; }

  // --- turns -----------------------------------------------------------------------------------------------------------
  host::TurnQueue& turns() noexcept { return turns_; }
  // After a failure members no longer agree on numbers: nothing more runs here.
  void fail() noexcept { failed_ = true; }
  bool failed() const noexcept { return failed_; }

  // --- arrivals --------------------------------------------------------------------------------------------------------
  struct Arrival {
    std::uint64_t fingerprint = 0;
    Place send = {};
    Place recv = {};
    std::span<const std::byte> payload = {};  // at most kInlineBytes
    // Where private buffers are, for members that can read them.
    const std::byte* private_send = nullptr;
    const std::byte* private_recv = nullptr;
  };
  // Every member's process can be read by me. Members may differ in that: it travels with the arrival.
  bool can_pull() const noexcept { return can_pull_; }
  void set_can_pull(bool can) noexcept { can_pull_ = can; }  // for tests and benchmarks
  // Of the arrival that comes next.
  std::uint64_t next_number() const noexcept { return arrivals_ + 1; }
  // Publishes my arrival at the next operation and returns its number.
  std::uint64_t arrive(const Call& call, const Arrival& arrival) noexcept;
  FlagRef arrival_flag(int member, std::uint64_t number) const noexcept {
    return {domain_rank(member), arrival_line(member, number), 0};
  }
  bool has_arrived(int member, std::uint64_t number) const noexcept {
    return arrival_word(member, number, 0).load(std::memory_order_acquire) >= number;
  }
  // Of a member that has arrived:
  std::uint64_t fingerprint_of(int member, std::uint64_t number) const noexcept {
    return arrival_word(member, number, 1).load(std::memory_order_relaxed);
  }
  Place send_place_of(int member, std::uint64_t number) const noexcept {
    return place(arrival_word(member, number, 2));
  }
  Place recv_place_of(int member, std::uint64_t number) const noexcept {
    return place(arrival_word(member, number, 3));
  }
  // Null: shared, empty, or the member does not pull itself. Only of an arrival that meet() published.
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
  void read_payload(int member, std::uint64_t number, std::span<std::byte> into) const noexcept;
  // Throws kMismatch, with the same sentence on every member, if not all called the same. All have arrived.
  void require_agreement(std::uint64_t number) const;
  bool agree(std::uint64_t number) const noexcept;
  // What stores of this operation are known as to the fence; never 0.
  std::uint64_t store_id(std::uint64_t number) const noexcept;

  // An arrival that the fast path published and left to a coroutine (collectives/host/small.h).
  std::optional<std::uint64_t> take_begun() noexcept { return std::exchange(begun_, std::nullopt); }
  void set_begun(std::uint64_t number) noexcept { begun_ = number; }
  bool has_begun() const noexcept { return begun_.has_value(); }

  // --- progress --------------------------------------------------------------------------------------------------------
  FlagRef progress_flag(int member, Word word) const noexcept {
    return {domain_rank(member), lines_[static_cast<std::size_t>(member)] + kProgressLine, word};
  }
  std::uint64_t progress(int member, Word word) const noexcept {
    const FlagRef flag = progress_flag(member, word);
    return domain_.line(flag.owner, flag.line).word[flag.word].load(std::memory_order_acquire);
  }
  void publish(Word word, std::uint64_t value) noexcept {
    domain_.publish(lines_[static_cast<std::size_t>(me_)] + kProgressLine, word, value);
  }
  // Chunks that all pipelines before this one moved: the same number on every member.
  std::uint64_t chunks_before() const noexcept { return chunks_; }
  void add_chunks(std::uint64_t chunks) noexcept { chunks_ += chunks; }

  // --- staging ---------------------------------------------------------------------------------------------------------
  // Mine, made when first used; called before the arrival of the operation that uses it.
  void need_staging();
  std::byte* eager(int member, std::uint64_t number) noexcept { return staging(member) + number % 2 * kEagerBytes; }
  std::byte* slot(int member, std::uint64_t chunk) noexcept {
    return staging(member) + 2 * kEagerBytes + chunk % kSlots * (kSlotBytes + kResultBytes);
  }
  // The part of the slot where a member leaves what it reduced.
  std::byte* result_slot(int member, std::uint64_t chunk) noexcept { return slot(member, chunk) + kSlotBytes; }

  // Shared memory of mine for packed tensors, kept once it was used.
  Buffer pack_memory(std::size_t bytes);

  // --- messages --------------------------------------------------------------------------------------------------------
  // Made when first asked for.
  host::SendChannel& channel_to(int member);
  host::RecvChannel& channel_from(int member);

  const CpuCompute& cpu() const noexcept { return cpu_; }
  int spins() const noexcept { return spins_; }
  void set_spins(int spins) noexcept { spins_ = spins; }  // for tests and benchmarks

 private:
  static constexpr std::uint32_t kArrivalLine = 0;
  static constexpr std::uint32_t kCallLine = 2;
  static constexpr std::uint32_t kProgressLine = 4;
  static constexpr std::uint32_t kLines = 5;
  static constexpr std::uint32_t kPayloadWord = 4;
  static constexpr std::uint32_t kPrivateWord = kPayloadWord + kInlineBytes / 8;
  static constexpr std::size_t kResultBytes = kSlotBytes / 2;  // a member's part of a chunk, with two members the most
  static constexpr std::size_t kStagingBytes = 2 * kEagerBytes + kSlots * (kSlotBytes + kResultBytes);

  static Place place(const std::atomic<std::uint64_t>& word) noexcept {
    const std::uint64_t value = word.load(std::memory_order_relaxed);
    return value == 0 ? Place() : Place(value - 1);
  }
  std::uint32_t arrival_line(int member, std::uint64_t number) const noexcept {
    return lines_[static_cast<std::size_t>(member)] + kArrivalLine + static_cast<std::uint32_t>(number % 2);
  }
  const std::atomic<std::uint64_t>& arrival_word(int member, std::uint64_t number, std::uint32_t word) const noexcept {
    return domain_.line(domain_rank(member), arrival_line(member, number)).word[word];
  }
  std::uint64_t channel_key(int from, int to) const noexcept;
  CallSummary call_of(int member, std::uint64_t number) const noexcept;
  std::byte* staging(int member) noexcept;

  HostDomain& domain_;
  ViewPtr view_;
  int me_;
  std::vector<int> domain_ranks_;
  std::span<const int> ranks_;
  std::vector<std::uint32_t> lines_;
  std::vector<std::byte*> staging_;  // of each member, once known
  HostRange my_staging_;
  HostRange my_packs_;

  host::TurnQueue turns_;
  bool failed_ = false;
  bool closed_ = false;
  bool can_pull_ = true;
  std::uint64_t arrivals_ = 0;
  std::uint64_t chunks_ = 0;
  std::optional<std::uint64_t> begun_;
  std::map<int, std::unique_ptr<host::SendChannel>> to_;
  std::map<int, std::unique_ptr<host::RecvChannel>> from_;
  CpuCompute cpu_;
  int spins_;
};

}  // namespace aiacc

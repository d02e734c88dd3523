// HostDomain: memory and flags that the ranks of one host share (design decisions 5 and 6).
//
// One segment a host: a control area of single-writer lines, then a slice of address space for each rank. A rank reads and,
// inside a StoreWindow, writes its peers' slices through its own mapping. Algorithms name memory as (rank, offset) and
// never keep a pointer across an await that may have been fenced.
//
// Implementations: MemfdDomain (processes, and threads as ranks), SimDomain (virtual time; one heap, or a memfd mapped
// once for each member in tests of aliasing). All pass host_conformance.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/task/loop.h"
#include "base/task/turn_queue.h"

namespace aiacc {

// 128 bytes: two cache lines, because x86 prefetches pairs. One writer, any number of readers. Words are monotonic
// counters unless their user documents otherwise; they start at zero.
struct alignas(128) ControlLine {
  std::atomic<std::uint64_t> word[16];
};
static_assert(sizeof(ControlLine) == 128);

// A word of a rank's control lines.
struct FlagRef {
  int owner = 0;
  std::uint32_t line = 0;
  std::uint32_t word = 0;
};

// Memory in the owner's slice: whole pages, with an alignment offset that differs by rank ("colour"), because equally
// aligned peer buffers were measured to be 3.4 times slower.
struct HostRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

class HostDomain {
 public:
  virtual ~HostDomain() = default;

  virtual int rank() const noexcept = 0;  // this rank among the host's ranks
  virtual int size() const noexcept = 0;
  virtual Loop& loop() noexcept = 0;

  // --- memory ------------------------------------------------------------------------------------------------------
  // Address at which [offset, offset + bytes) of `owner`'s slice is mapped in this process. Offsets come from peers, so
  // the range is checked: throws kProtocol if it is not within the slice.
  virtual std::byte* view(int owner, std::uint64_t offset, std::uint64_t bytes) = 0;
  // All of it, for who checks ranges by itself; it stays where it is as long as this object.
  virtual std::span<const std::byte> slice(int owner) const noexcept = 0;
  std::byte* view(int owner, HostRange range) { return view(owner, range.offset, range.bytes); }
  // Allocates from this rank's slice; the pages are populated and zero. If a memory limit would be exceeded, throws
  // kOutOfMemory with the numbers before any page is touched. Any thread may call allocate(), free() and offset_of().
  virtual HostRange allocate(std::uint64_t bytes) = 0;
  virtual void free(HostRange range) noexcept = 0;
  // The offset of [data, data + bytes) if all of it lies in one allocation of this rank's slice.
  virtual std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const noexcept = 0;

  // Whether this rank can read `owner`'s private memory: the kernel permits it, and a probe has shown that it is that
  // process. Known once `owner` has claimed lines.
  virtual bool can_read(int /*owner*/) noexcept { return false; }
  // Copies from `owner`'s private memory. Throws kAborted if the memory no longer exists because its owner has died or
  // given up.
  virtual void read_private(int /*owner*/, const std::byte* /*from*/, std::span<std::byte> /*into*/) {
    throw Error(Code::kUnsupported, "this process cannot read the memory of its peers");
  }

  // --- control lines -----------------------------------------------------------------------------------------------
  // Claims lines of this rank for one use (a group) and publishes them under `key`, so that peers find them without an
  // exchange.
  virtual std::uint32_t claim_lines(std::uint64_t key, std::uint32_t count) = 0;
  virtual void release_lines(std::uint64_t key) noexcept = 0;
  // The first of `owner`'s `count` lines for `key`; nullopt until it has claimed them.
  virtual std::optional<std::uint32_t> find_lines(int owner, std::uint64_t key, std::uint32_t count) const noexcept = 0;
  // Counter of `owner`'s claims and releases: await a change while find_lines() returns nullopt. It is word 0 of line
  // 0, which the domain keeps for itself on every rank.
  static constexpr FlagRef claims(int owner) noexcept { return {owner, 0, 0}; }

  // Lines are consecutive in memory, and stay where they are as long as this object.
  virtual const ControlLine& line(int owner, std::uint32_t line) const noexcept = 0;
  virtual ControlLine& own_line(std::uint32_t line) noexcept = 0;

  // Values from here on are for events that nobody spins for, such as an abort: waiting for one does not keep a loop
  // awake, and publishing one wakes every sleeping rank.
  static constexpr std::uint64_t kUrgent = std::uint64_t{1} << 63;

  // Release-stores `value` into a word of one of this rank's lines and wakes the ranks that block on it.
  virtual void publish(std::uint32_t line, std::uint32_t word, std::uint64_t value) noexcept = 0;

  // --- waiting -----------------------------------------------------------------------------------------------------
  // Whether other ranks go on while this thread polls. If not, only the loop lets them.
  virtual bool ranks_run_meanwhile() const noexcept { return false; }
  // co_await domain.at_least(flag, value, stop): until the word is >= value (acquire; pairs with publish).
  class FlagAwait final : public Leaf, public ListNode<FlagAwait> {
   public:
    FlagAwait(HostDomain& domain, FlagRef flag, std::uint64_t value, Stop& stop, bool soon = true) noexcept
        : Leaf(domain.loop(), stop), domain_(domain), flag_(flag), value_(value), soon_(soon) {}
    bool reached() const noexcept {
      return domain_.line(flag_.owner, flag_.line).word[flag_.word].load(std::memory_order_acquire) >= value_;
    }
    const FlagRef& flag() const noexcept { return flag_; }
    std::uint64_t value() const noexcept { return value_; }

   private:
    bool try_now() override { return soon_ ? domain_.look(*this) : reached(); }
    void begin() noexcept override { domain_.begin_wait(*this); }
    void cancel() noexcept override { domain_.cancel_wait(*this); }
    HostDomain& domain_;
    FlagRef flag_;
    std::uint64_t value_;
    bool soon_;
  };
  FlagAwait at_least(FlagRef flag, std::uint64_t value, Stop& stop) noexcept {
    return FlagAwait(*this, flag, value, stop);
  }
  // The same for who need not have it soon: leaves polling to the loop from the beginning.
  FlagAwait at_least_later(FlagRef flag, std::uint64_t value, Stop& stop) noexcept {
    return FlagAwait(*this, flag, value, stop, false);
  }

  // --- the store fence -----------------------------------------------------------------------------------------------
  // Announces stores into peers' slices for `operation` (non-zero): marks this rank's line, executes a fence, then
  // checks the abort word. If the operation was aborted, throws its error and leaves no mark. check_stores() repeats
  // the check and is called once a chunk while marked. A rank has one window open at a time: coroutines whose stores
  // may suspend queue here.
  TurnQueue& window_turns() noexcept { return window_turns_; }
  virtual void begin_stores(std::uint64_t operation) = 0;
  virtual void check_stores() = 0;
  virtual void end_stores() noexcept = 0;

  // Tells every rank to stop the stores of `operation`.
  virtual void abort_stores(std::uint64_t operation) noexcept = 0;
  // Returns when no peer can modify this rank's `range` any more: each peer that was storing for `operation` has
  // acknowledged or is dead (`is_dead(rank)`), or a second has passed and the pages were replaced by a private copy at
  // the same address.
  virtual Task<void> quiesce(std::uint64_t operation, HostRange range) = 0;
  // A peer's process has died: never wait for it again.
  virtual void mark_dead(int rank) noexcept = 0;

  // Records that this rank leaves in order, so that the end of its process is not a failure. Peers read the record when
  // they need it. The lines that this rank releases from then on stay as long as the segment: peers that are late find them, and
  // what it said last, when it has gone.
  virtual void say_leaving() noexcept = 0;
  virtual bool leaving(int rank) const noexcept = 0;

 private:
  TurnQueue window_turns_;

 protected:
  virtual bool look(FlagAwait& wait) { return wait.reached(); }  // may spin briefly before it returns false
  virtual void begin_wait(FlagAwait& wait) noexcept = 0;
  virtual void cancel_wait(FlagAwait& wait) noexcept = 0;
};

// Marks this rank as storing while it lives.
class StoreWindow {
 public:
  StoreWindow(HostDomain& domain, std::uint64_t operation) : domain_(domain) { domain_.begin_stores(operation); }
  ~StoreWindow() { domain_.end_stores(); }
  StoreWindow(const StoreWindow&) = delete;
  StoreWindow& operator=(const StoreWindow&) = delete;
  void next_chunk() { domain_.check_stores(); }

 private:
  HostDomain& domain_;
};

}  // namespace aiacc

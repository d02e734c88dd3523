// HostDomain: memory and flags that the ranks of one host share (design decisions 5 and 6).
//
// One segment a host: a control area of single-writer lines, then a slice of address space for each rank. A rank reads and,
// inside a StoreWindow, writes its peers' slices through its own mapping. Algorithms name memory as (rank, offset) and
// never keep a pointer across an await that may have been fenced.
//
// Implementations: MemfdDomain (processes, and threads as ranks), SimDomain (virtual time; one heap, or a memfd mapped once
// a member where aliasing is what is tested). All pass host_conformance.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/task/loop.h"

namespace aiacc {

// 128 bytes: two cache lines, because x86 prefetches pairs. One writer, any number of readers. Words are monotonic counters
// unless their user says otherwise. Zero when new.
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

// Memory in the owner's slice: whole pages, coloured by rank (equal alignment of peers' buffers was seen to cost 3.4 times).
struct HostRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

class HostDomain {
 public:
  virtual ~HostDomain() = default;

  virtual int rank() const noexcept = 0;  // mine among the host's ranks
  virtual int size() const noexcept = 0;
  virtual Loop& loop() noexcept = 0;

  // --- memory ------------------------------------------------------------------------------------------------------
  // Where `owner`'s slice at `offset` is mapped for me.
  virtual std::byte* view(int owner, std::uint64_t offset) noexcept = 0;
  // Of my slice, populated and zero. Throws kOutOfMemory with the numbers before any page is touched if a limit is in the
  // way. Any thread may call allocate(), free() and offset_of().
  virtual HostRange allocate(std::uint64_t bytes) = 0;
  virtual void free(HostRange range) noexcept = 0;
  // The offset of [data, data + bytes) if all of it lies in one allocation of my slice.
  virtual std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const noexcept = 0;

  // Whether I may read what lies in `owner`'s process outside of the segment: the kernel allows it, and it is that process.
  // Known once it has claimed lines.
  virtual bool can_read(int /*owner*/) noexcept { return false; }
  // Copies from there; throws kAborted if nothing is there (any more): its owner has died, or given up.
  virtual void read_private(int /*owner*/, const std::byte* /*from*/, std::span<std::byte> /*into*/) {
    throw Error(Code::kUnsupported, "this process cannot read the memory of its peers");
  }

  // --- control lines -----------------------------------------------------------------------------------------------
  // Lines of mine for one use (a group), published under `key` so that peers find them without a round.
  virtual std::uint32_t claim_lines(std::uint64_t key, std::uint32_t count) = 0;
  virtual void release_lines(std::uint64_t key) noexcept = 0;
  // Where `owner` has its lines for `key`; nullopt while it has not claimed them.
  virtual std::optional<std::uint32_t> find_lines(int owner, std::uint64_t key) const noexcept = 0;
  // Counts the claims of `owner` and its releases: await it while find_lines says nullopt. Line 0 of every rank is the
  // domain's own, and this is its word 0.
  static constexpr FlagRef claims(int owner) noexcept { return {owner, 0, 0}; }

  virtual const ControlLine& line(int owner, std::uint32_t line) const noexcept = 0;
  virtual ControlLine& own_line(std::uint32_t line) noexcept = 0;

  // News that nobody spins for, such as an abort: waiting for a value this high does not keep a loop awake, and publishing
  // one wakes every rank that sleeps.
  static constexpr std::uint64_t kUrgent = std::uint64_t{1} << 63;

  // Release-stores `value` into a word of my own line and wakes whoever blocks on a flag of this host.
  virtual void publish(std::uint32_t line, std::uint32_t word, std::uint64_t value) noexcept = 0;

  // --- waiting -----------------------------------------------------------------------------------------------------
  // co_await domain.at_least(flag, value, stop): until the word is >= value (acquire; pairs with publish).
  class FlagAwait final : public Leaf, public ListNode<FlagAwait> {
   public:
    FlagAwait(HostDomain& domain, FlagRef flag, std::uint64_t value, Stop& stop) noexcept
        : Leaf(domain.loop(), stop), domain_(domain), flag_(flag), value_(value) {}
    bool reached() const noexcept {
      return domain_.line(flag_.owner, flag_.line).word[flag_.word].load(std::memory_order_acquire) >= value_;
    }
    const FlagRef& flag() const noexcept { return flag_; }
    std::uint64_t value() const noexcept { return value_; }

   private:
    bool try_now() override { return domain_.look(*this); }
    void begin() noexcept override { domain_.begin_wait(*this); }
    void cancel() noexcept override { domain_.cancel_wait(*this); }
    HostDomain& domain_;
    FlagRef flag_;
    std::uint64_t value_;
  };
  FlagAwait at_least(FlagRef flag, std::uint64_t value, Stop& stop) noexcept {
    return FlagAwait(*this, flag, value, stop);
  }

  // --- the fence ---------------------------------------------------------------------------------------------------
  // I am about to store into peers' slices for `operation` (non-zero). Marks my line, fences, then looks at the abort
  // word: throws the abort's error and leaves no mark if the domain's epoch was aborted. check_stores() is called once a
  // chunk and does the same look while marked.
  virtual void begin_stores(std::uint64_t operation) = 0;
  virtual void check_stores() = 0;
  virtual void end_stores() noexcept = 0;

  // Tells every rank that stores of `operation` must cease.
  virtual void abort_stores(std::uint64_t operation) noexcept = 0;
  // Returns when no peer can change [range] of mine any more: peers seen in-store for `operation` have acknowledged, are
  // gone (`is_dead(rank)`), or a second has passed and the pages were replaced by a private copy at the same address.
  virtual Task<void> quiesce(std::uint64_t operation, HostRange range) = 0;
  // A peer's process is gone: it is never waited for again.
  virtual void mark_dead(int rank) noexcept = 0;

  // I leave in order: the end of my process is no death. Peers see it whenever they look.
  virtual void say_leaving() noexcept = 0;
  virtual bool leaving(int rank) const noexcept = 0;

 protected:
  virtual bool look(FlagAwait& wait) { return wait.reached(); }  // may spin a little before it says no
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

// SlabPool: memory for many objects of one size that come and go: no allocation in the steady state, any thread may take and give
// back. It keeps what it has had until it is destroyed, which is when no object is left. What was given back last is taken first, as it
// is probably in the caches still: a few objects at a time use the same memory again, also after there were many.
//
// What is given back is pushed on a list without a lock and never popped one by one, but taken as a whole, so that an entry which
// went and came again (ABA) harms nobody. A thread that gives back many at once gathers them (Gathering), and pushes them with one
// atomic operation. Under the address sanitizer every object comes from malloc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/spin_lock.h"

namespace aiacc {

class SlabPool {
 public:
  // Who takes: any thread, or one at a time as the caller sees to, which saves the lock.
  enum class Takers : std::uint8_t { kAny, kOneAtATime };
  // `bytes` is at most 16 KiB.
  explicit SlabPool(std::size_t bytes, Takers takers = Takers::kAny) noexcept;
  ~SlabPool();
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  void* take();                                // throws std::bad_alloc
  static void give_back(void* item) noexcept;  // to the pool that it came from
  // Number of slabs ever made: for tests.
  std::size_t slabs() const noexcept { return slabs_.size(); }

 private:
  struct Free {
    Free* next;
    Free* before = nullptr;  // of the first of a list: the list that was begun before it and is not used up
  };

 public:
  // While it lives, what its thread gives back is gathered, and given back together at its end: before the pool's. One in a thread at
  // a time.
  class Gathering {
   public:
    Gathering() noexcept { present_ = this; }
    ~Gathering() {
      present_ = nullptr;
      give_back();
    }
    Gathering(const Gathering&) = delete;
    Gathering& operator=(const Gathering&) = delete;

   private:
    friend class SlabPool;
    void add(SlabPool& pool, void* item) noexcept;
    void give_back() noexcept;
    static constinit thread_local Gathering* present_;
    SlabPool* pool_ = nullptr;
    Free* first_ = nullptr;
    Free* last_ = nullptr;
  };

 private:
  static constexpr std::size_t kSlabBytes = 64 << 10;  // and its alignment: so an item finds its pool
  static constexpr unsigned kTakesPerLook = 16;        // at what was given back, while there is anything else
  struct Slab {
    SlabPool* pool;
  };

  void* take_one();
  void take_back() noexcept;
  void add_slab();
  void give_back(Free* first, Free* last) noexcept;

  std::size_t bytes_;
  Takers takers_;
  Free* free_ = nullptr;    // the taker's, as what follows
  Free* before_ = nullptr;  // the first of the lists that were begun before
  unsigned takes_ = 0;
  std::byte* fresh_ = nullptr;  // never taken yet, in the last slab
  std::byte* end_ = nullptr;    // of that
  std::vector<void*> slabs_;
  SpinLock taking_;  // two threads seldom take at once: one drives the lane
  alignas(64) std::atomic<Free*> given_back_{nullptr};
};

}  // namespace aiacc

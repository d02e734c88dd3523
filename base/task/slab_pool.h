// SlabPool: memory for many objects of one size that come and go: no allocation in the steady state, any thread may take and give
// back. It keeps what it has had until it is destroyed, which is when no object is left.
//
// What is given back is pushed on a list without a lock and never popped one by one, but taken as a whole, so that an entry which
// went and came again (ABA) harms nobody. Under the address sanitizer every object comes from malloc.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "base/spin_lock.h"

namespace aiacc {

class SlabPool {
 public:
  // `bytes` is at most 16 KiB.
  explicit SlabPool(std::size_t bytes) noexcept;
  ~SlabPool();
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  void* take();                                // throws std::bad_alloc
  static void give_back(void* item) noexcept;  // to the pool that it came from
  // Number of slabs ever made: for tests.
  std::size_t slabs() const noexcept { return slabs_.size(); }

 private:
  static constexpr std::size_t kSlabBytes = 64 << 10;  // and its alignment: so an item finds its pool
  struct Free {
    Free* next;
  };
  struct Slab {
    SlabPool* pool;
  };

  void add_slab();

  std::size_t bytes_;
  Free* free_ = nullptr;        // guarded by taking_
  std::byte* fresh_ = nullptr;  // never taken yet, in the last slab
  std::byte* end_ = nullptr;    // of that
  std::vector<void*> slabs_;
  SpinLock taking_;  // two threads seldom take at once: one drives the lane
  alignas(64) std::atomic<Free*> given_back_{nullptr};
};

}  // namespace aiacc

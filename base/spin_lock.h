// SpinLock: for a few instructions that two threads seldom execute at once. Taking it costs one atomic operation and giving it back
// none, where a std::mutex costs one for each. Whoever finds it taken yields its core.
#pragma once

#include <sched.h>

#include <atomic>

namespace aiacc {

class SpinLock {
 public:
  void lock() noexcept {
    while (taken_.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  void unlock() noexcept { taken_.clear(std::memory_order_release); }

 private:
  std::atomic_flag taken_;
};

}  // namespace aiacc

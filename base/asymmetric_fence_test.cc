#include "base/asymmetric_fence.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "base/cpu_relax.h"

namespace aiacc {
namespace {

struct alignas(128) Word {
  std::atomic<int> value{0};

  void await(int wanted) const {
    for (int looks = 1; value.load(std::memory_order_acquire) < wanted; ++looks) {
      if (looks % 1'000 == 0) sched_yield();
    }
  }
};

// Each thread stores its word and then loads the other's: without fences both loads may be of the old value, as each store is
// still in its processor's buffer. One of them begins a little later in each round, until the stores coincide in some.
TEST(AsymmetricFence, OneOfTwoSeesTheOthersStore) {
  if (!register_for_fences()) GTEST_SKIP() << "this system has no fence for all processes";
  constexpr int kRounds = 3'000;
  Word begun, ended, often, seldom;
  int seen_often = 0;
  std::thread light([&] {
    for (int i = 1; i <= kRounds; ++i) {
      begun.await(i);
      often.value.store(i, std::memory_order_release);
      light_fence();
      seen_often = seldom.value.load(std::memory_order_relaxed);
      ended.value.store(i, std::memory_order_release);
    }
  });
  int missed = 0;
  for (int i = 1; i <= kRounds; ++i) {
    begun.value.store(i, std::memory_order_release);
    for (int pause = i % 40; pause > 0; --pause) cpu_relax();
    seldom.value.store(i, std::memory_order_relaxed);
    EXPECT_TRUE(fence_for_all());
    const int seen = often.value.load(std::memory_order_relaxed);
    ended.await(i);
    if (seen < i && seen_often < i) ++missed;
  }
  light.join();
  EXPECT_EQ(missed, 0);
}

}  // namespace
}  // namespace aiacc

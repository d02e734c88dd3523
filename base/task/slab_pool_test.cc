#include "base/task/slab_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace aiacc {
namespace {

constexpr std::size_t kBytes = 200;

TEST(SlabPool, GivesEachItsOwnMemoryAndTheSameAgain) {
  SlabPool pool(kBytes);
  for (int round = 0; round < 3; ++round) {
    std::set<std::byte*> items;
    for (int i = 0; i < 2000; ++i) {
      auto* const item = static_cast<std::byte*>(pool.take());
      std::memset(item, i, kBytes);
      items.insert(item);
    }
    ASSERT_EQ(items.size(), 2000u);
    std::byte* before = nullptr;
    for (std::byte* item : items) {
      if (before != nullptr) {
        ASSERT_GE(item - before, static_cast<std::ptrdiff_t>(kBytes));
      }
      before = item;
    }
    for (std::byte* item : items) SlabPool::give_back(item);
  }
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_EQ(pool.slabs(), 2000 * 256 / (64 * 1024) + 1) << "the second round took the memory of the first";
#endif
}

#if !defined(__SANITIZE_ADDRESS__)
// Also after there were many, so that a few need only a few lines of a cache.
TEST(SlabPool, GivesAFewTheMemoryOfThoseThatWereGivenBackLast) {
  SlabPool pool(kBytes, SlabPool::Takers::kOneAtATime);
  const auto round = [&pool](int count) {
    std::set<void*> items;
    for (int i = 0; i < count; ++i) items.insert(pool.take());
    EXPECT_EQ(items.size(), static_cast<std::size_t>(count));
    const SlabPool::Gathering gathering;
    for (void* item : items) SlabPool::give_back(item);
    return items;
  };
  const std::size_t all = round(5000).size();
  std::set<void*> used;
  for (int i = 0; i < 100; ++i) used.merge(round(64));
  EXPECT_LE(used.size(), 128u);
  const std::size_t slabs = pool.slabs();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(round(5000).size(), all);
  EXPECT_EQ(pool.slabs(), slabs) << "none was lost";
}
#endif

// Each writes its own number into what it takes and finds it there when it gives it back.
TEST(SlabPool, ServesThreads) {
  SlabPool pool(kBytes);
  std::vector<std::thread> threads;
  for (int self = 0; self < 4; ++self) {
    threads.emplace_back([&pool, self] {
      std::vector<void*> mine;
      for (int i = 0; i < 20000; ++i) {
        if (mine.size() < 50 && i % 3 != 0) {
          mine.push_back(pool.take());
          std::memset(mine.back(), self, kBytes);
        } else if (!mine.empty()) {
          const auto* const bytes = static_cast<const char*>(mine.back());
          for (std::size_t at = 0; at < kBytes; ++at) EXPECT_EQ(bytes[at], self);
          SlabPool::give_back(mine.back());
          mine.pop_back();
        }
      }
      for (void* item : mine) SlabPool::give_back(item);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// One thread takes, and another gives back what it has gathered of two pools.
TEST(SlabPool, TakesBackWhatAThreadHasGathered) {
  SlabPool pool(kBytes, SlabPool::Takers::kOneAtATime);
  SlabPool other(kBytes);
  for (int round = 0; round < 4; ++round) {
    std::vector<void*> items;
    for (int i = 0; i < 1000; ++i) {
      items.push_back((i % 10 == 0 ? other : pool).take());
      std::memset(items.back(), i, kBytes);
    }
    EXPECT_EQ(std::set<void*>(items.begin(), items.end()).size(), 1000u);
    std::thread([&] {
      const SlabPool::Gathering gathering;
      for (void* item : items) SlabPool::give_back(item);
    }).join();
  }
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_EQ(pool.slabs(), 900 * 256 / (64 * 1024) + 1) << "later rounds took the memory of the first";
  EXPECT_EQ(other.slabs(), 1u);
#endif
}

}  // namespace
}  // namespace aiacc

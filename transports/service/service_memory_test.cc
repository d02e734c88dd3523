#include "transports/service/service_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace aiacc {
namespace {

constexpr std::size_t kKiB = 1 << 10;
constexpr std::size_t kMiB = 1 << 20;

struct Keeping : ServiceMemory {
  Keeping() { keep(true); }
};

TEST(ServiceMemory, KeepsABlockForTheNextOneOfItsSize) {
  Keeping memory;
  const std::byte* const first = memory.take(512 * kKiB + 88).get();  // given back at once
  EXPECT_EQ(memory.kept_bytes(), 640 * kKiB);
  const ServiceMemory::Block other = memory.take(512 * kKiB);
  EXPECT_NE(other.get(), first) << "of another class";
  const ServiceMemory::Block next = memory.take(600 * kKiB);
  EXPECT_EQ(next.get(), first);
  EXPECT_EQ(memory.kept_bytes(), 0u);
  std::memset(next.get(), 1, 640 * kKiB);
}

TEST(ServiceMemory, LeavesShortAndVeryLongBlocksToMalloc) {
  Keeping memory;
  EXPECT_EQ(memory.take(0), nullptr);
  for (const std::size_t bytes : {std::size_t{1}, ServiceMemory::kSmallest - 1, ServiceMemory::kLargest + 1}) {
    const ServiceMemory::Block block = memory.take(bytes);
    std::memset(block.get(), 1, bytes);
  }
  EXPECT_EQ(memory.kept_bytes(), 0u);
  for (const std::size_t bytes : {ServiceMemory::kSmallest, ServiceMemory::kLargest})
    static_cast<void>(memory.take(bytes));
  EXPECT_EQ(memory.kept_bytes(), ServiceMemory::kSmallest + ServiceMemory::kLargest);
}

TEST(ServiceMemory, KeepsNoMoreThanItsBound) {
  Keeping memory;
  std::vector<ServiceMemory::Block> blocks;
  for (std::size_t bytes = 0; bytes < 2 * ServiceMemory::kKeptBytes; bytes += kMiB) blocks.push_back(memory.take(kMiB));
  while (!blocks.empty()) {
    blocks.pop_back();
    ASSERT_LE(memory.kept_bytes(), ServiceMemory::kKeptBytes);
  }
  EXPECT_EQ(memory.kept_bytes(), ServiceMemory::kKeptBytes);
}

TEST(ServiceMemory, GivesBackWhatNobodyNeedsFromOneTrimToTheNext) {
  Keeping memory;
  for (int round = 0; round < 5; ++round) {
    const ServiceMemory::Block one = memory.take(kMiB), two = memory.take(kMiB);
    const ServiceMemory::Block three = round == 0 ? memory.take(kMiB) : ServiceMemory::Block();
  }
  memory.trim();
  EXPECT_EQ(memory.kept_bytes(), 3 * kMiB) << "it was needed since the trim before";
  { const ServiceMemory::Block one = memory.take(kMiB), two = memory.take(kMiB); }
  memory.trim();
  EXPECT_EQ(memory.kept_bytes(), 2 * kMiB);
  memory.trim();
  EXPECT_EQ(memory.kept_bytes(), 0u);
}

// A job that goes from values of one size to those of another.
TEST(ServiceMemory, AFullCacheMakesRoomOfWhatNobodyNeeds) {
  Keeping memory;
  std::vector<ServiceMemory::Block> blocks;
  for (std::size_t bytes = 0; bytes < ServiceMemory::kKeptBytes; bytes += kMiB) blocks.push_back(memory.take(kMiB));
  blocks.clear();
  memory.trim();
  static_cast<void>(memory.take(2 * kMiB));
  EXPECT_EQ(memory.kept_bytes(), 2 * kMiB);
}

TEST(ServiceMemory, KeepsNothingBeforeAndAfterItsUse) {
  ServiceMemory memory;
  static_cast<void>(memory.take(kMiB));
  EXPECT_EQ(memory.kept_bytes(), 0u);
  memory.keep(true);
  ServiceMemory::Block late = memory.take(kMiB);
  static_cast<void>(memory.take(2 * kMiB));
  memory.keep(false);
  EXPECT_EQ(memory.kept_bytes(), 0u);
  late.reset();
  EXPECT_EQ(memory.kept_bytes(), 0u);
}

TEST(ServiceMemory, ABlockMayOutliveIt) {
  ServiceMemory::Block block;
  {
    Keeping memory;
    block = memory.take(kMiB);
  }
  std::memset(block.get(), 1, kMiB);
}

TEST(ServiceMemory, SharedMemoryIsItsOwnersToFree) {
  auto owner = std::make_shared<std::vector<std::byte>>(100);
  std::weak_ptr<const void> watched = owner;
  ServiceMemory::Block one = ServiceMemory::shared(owner->data(), owner),
                       two = ServiceMemory::shared(owner->data(), owner);
  owner.reset();
  one = ServiceMemory::Block();
  EXPECT_FALSE(watched.expired());
  two = ServiceMemory::Block();
  EXPECT_TRUE(watched.expired());
}

#if defined(__SANITIZE_ADDRESS__)
TEST(ServiceMemory, KeptBlocksAreNobodys) {
  Keeping memory;
  std::byte* const block = memory.take(kMiB).get();
  EXPECT_TRUE(__asan_address_is_poisoned(block));
  const ServiceMemory::Block again = memory.take(kMiB);
  ASSERT_EQ(again.get(), block);
  EXPECT_EQ(__asan_region_is_poisoned(block, kMiB), nullptr);
}
#endif

// Each writes its own number into what it takes and finds it there when it gives it back.
TEST(ServiceMemory, ServesThreads) {
  Keeping memory;
  std::vector<std::thread> threads;
  for (unsigned char self = 0; self < 4; ++self) {
    threads.emplace_back([&memory, self] {
      std::mt19937 random(self);
      struct Mine {
        ServiceMemory::Block block;
        std::size_t bytes;
      };
      std::vector<Mine> mine;
      for (int i = 0; i < 2000; ++i) {
        if (mine.size() < 20 && random() % 2 == 0) {
          const std::size_t bytes = ServiceMemory::kSmallest + random() % (64 * kKiB);
          mine.push_back({memory.take(bytes), bytes});
          std::memset(mine.back().block.get(), self, bytes);
        } else if (!mine.empty()) {
          const Mine& last = mine.back();
          for (std::size_t at = 0; at < last.bytes; at += 1021) ASSERT_EQ(last.block[at], std::byte{self});
          mine.pop_back();
        }
        if (i % 200 == 0) memory.trim();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(memory.kept_bytes(), ServiceMemory::kKeptBytes);
  memory.trim();
  memory.trim();
  EXPECT_EQ(memory.kept_bytes(), 0u);
}

}  // namespace
}  // namespace aiacc

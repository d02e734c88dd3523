#include "base/data/scratch_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace aiacc {
namespace {

TEST(ScratchPool, GivesTheSmallestThatIsLargeEnough) {
  HostMemory memory;
  ScratchPool pool(memory);
  Buffer small = pool.take(100), large = pool.take(1000);
  const std::byte* const small_data = small.data;
  const std::byte* const large_data = large.data;
  pool.give_back(large);
  pool.give_back(small);
  Buffer first = pool.take(90), second = pool.take(90);
  EXPECT_EQ(first.data, small_data);
  EXPECT_EQ(second.data, large_data);
  const Buffer third = pool.take(90);
  EXPECT_GE(third.bytes, 90u) << "and new ones when none is left";
  for (const Buffer& each : {first, second, third}) pool.give_back(each);
}

// Of equal sizes the one that was used last, whose memory is warm; none is moved for it, however many are kept.
TEST(ScratchPool, GivesWhatCameBackLast) {
  HostMemory memory;
  ScratchPool pool(memory);
  std::vector<Buffer> all;
  for (std::size_t i = 0; i < 10'000; ++i) all.push_back(pool.take(1 + i % 600));
  for (const Buffer& each : all) pool.give_back(each);
  pool.give_back(pool.take(64));
  Buffer last = pool.take(64);
  pool.give_back(last);
  EXPECT_EQ(pool.take(60).data, last.data);
  pool.give_back(last);
  for (std::size_t bytes = 1; bytes <= ScratchPool::kKeptBytes; bytes = bytes * 9 / 8 + 1) {
    const Buffer one = pool.take(bytes);
    EXPECT_GE(one.bytes, bytes);
    pool.give_back(one);
  }
}

TEST(ScratchPool, KeepsSoMuchAndNoMore) {
  HostMemory memory;
  ScratchPool pool(memory);
  Buffer most = pool.take(ScratchPool::kKeptBytes), more = pool.take(1000);
  const std::byte* const most_data = most.data;
  pool.give_back(most);
  pool.give_back(more);
  const Buffer again = pool.take(1000);
  EXPECT_EQ(again.data, most_data) << "the second was not kept";
  pool.give_back(again);
  EXPECT_EQ(pool.take(0).bytes, 0u);
}

}  // namespace
}  // namespace aiacc

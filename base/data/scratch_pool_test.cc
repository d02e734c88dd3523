#include "base/data/scratch_pool.h"

#include <gtest/gtest.h>

namespace aiacc {
namespace {

TEST(ScratchPool, GivesTheSmallestThatIsLargeEnough) {
  ScratchPool pool;
  ScratchPool::Block small = pool.take(100), large = pool.take(1000);
  const std::byte* const small_data = small.data.get();
  const std::byte* const large_data = large.data.get();
  pool.give_back(std::move(large));
  pool.give_back(std::move(small));
  ScratchPool::Block first = pool.take(90), second = pool.take(90);
  EXPECT_EQ(first.data.get(), small_data);
  EXPECT_EQ(second.data.get(), large_data);
  EXPECT_GE(pool.take(90).bytes, 90u) << "and new ones when none is left";
}

TEST(ScratchPool, KeepsSoMuchAndNoMore) {
  ScratchPool pool;
  ScratchPool::Block most = pool.take(ScratchPool::kKeptBytes), more = pool.take(1000);
  const std::byte* const most_data = most.data.get();
  pool.give_back(std::move(most));
  pool.give_back(std::move(more));
  EXPECT_EQ(pool.take(1000).data.get(), most_data) << "the second was not kept";
  EXPECT_EQ(pool.take(0).bytes, 0u);
}

}  // namespace
}  // namespace aiacc

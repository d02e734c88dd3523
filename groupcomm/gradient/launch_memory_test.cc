#include "groupcomm/gradient/launch_memory.h"

#include <gtest/gtest.h>

namespace aiacc::gradient {
namespace {

TEST(GradientLaunchMemory, KeepsMemoryForTheNextLaunch) {
  LaunchMemory memory(nullptr);
  const LaunchMemory::Piece one = memory.take(10000);
  ASSERT_NE(one.data, nullptr);
  memory.give(one);
  const LaunchMemory::Piece again = memory.take(9000);
  EXPECT_EQ(again.data, one.data);
  const LaunchMemory::Piece other = memory.take(9000);
  EXPECT_NE(other.data, one.data);
  memory.give(again);
  memory.give(other);
}

}  // namespace
}  // namespace aiacc::gradient

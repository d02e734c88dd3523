#include "base/nearest.h"

#include <gtest/gtest.h>

#include <array>

namespace aiacc {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"host", "oversubscribe", "timeout", "tag-output", "np"};

TEST(Nearest, OneEditAway) {
  EXPECT_EQ(nearest("hots", kNames), "host");
  EXPECT_EQ(nearest("timout", kNames), "timeout");
  EXPECT_EQ(nearest("nq", kNames), "np");
}

TEST(Nearest, BeginningOfALongName) {
  EXPECT_EQ(nearest("over", kNames), "oversubscribe");  // "host" is fewer edits away
  EXPECT_EQ(nearest("hostfile", kNames), "host");
  EXPECT_EQ(nearest("tagout", kNames), "tag-output");
}

TEST(Nearest, SomethingForAnythingAndNothingForNone) {
  EXPECT_FALSE(nearest("zzzzzzzz", kNames).empty());
  EXPECT_EQ(nearest("", kNames), "np");
  EXPECT_EQ(nearest("x", {}), "");
}

}  // namespace
}  // namespace aiacc

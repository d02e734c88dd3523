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

TEST(Nearest, NothingIsNearToAnotherWord) {
  for (const char* word : {"zzzzzzzz", "nics", "mine", "tango", "x", ""}) EXPECT_EQ(nearest(word, kNames), "") << word;
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(Nearest, AnEditForEachThreeLetters) {
  EXPECT_EQ(nearest("overzuzcribe", kNames), "oversubscribe");
  EXPECT_EQ(nearest("ovezzuzzzibe", kNames), "");
  EXPECT_EQ(nearest("p", kNames), "np");
}

TEST(Nearest, ASentenceHasItOnlyWhereThereIsOne) {
  EXPECT_EQ(if_near("hots", kNames, "; did you mean ", "?"), "; did you mean host?");
  EXPECT_EQ(if_near("zzzzzzzz", kNames, "; did you mean ", "?"), "");
}

}  // namespace
}  // namespace aiacc

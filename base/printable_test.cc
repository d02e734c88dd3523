#include "base/printable.h"

#include <gtest/gtest.h>

namespace aiacc {
namespace {

using namespace std::string_view_literals;

TEST(Printable, KeepsPrintableCharacters) {
  for (const std::string_view text : {"plain ~!"sv, "größer"sv, "\u4e2d\u6587"sv, "\U0001F680"sv, ""sv}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(printable("a\nb\t\x1b[2J\x7f"sv), R"(a\x0ab\x09\x1b[2J\x7f)");
  EXPECT_EQ(printable("a\0b"sv), R"(a\x00b)");
  EXPECT_EQ(printable("\xc2\x9b"sv), R"(\xc2\x9b)") << "an eight-bit CSI";
}

TEST(Printable, EscapesCharactersThatChangeTheDirectionOfText) {
  for (const std::string_view text :
       {"\u061c"sv, "\u200e"sv, "\u200f"sv, "\u202a"sv, "\u202e"sv, "\u2066"sv, "\u2069"sv, "\u2028"sv, "\u2029"sv}) {
    EXPECT_EQ(printable_length(text), 0u);
    EXPECT_EQ(printable(text).find_first_not_of("\\x0123456789abcdef"), std::string::npos) << printable(text);
  }
  EXPECT_EQ(printable("a\u202eb"sv), R"(a\xe2\x80\xaeb)");
  EXPECT_EQ(printable("\u2027\u202f\u2065\u206a\u05d0\u0627"sv), "\u2027\u202f\u2065\u206a\u05d0\u0627"sv)
      << "the code points next to them";
}

TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("\xff\xfe"sv), R"(\xff\xfe)");
  EXPECT_EQ(printable("\xc3"sv), R"(\xc3)") << "cut short";
  EXPECT_EQ(printable("\xc3(x"sv), R"(\xc3(x)");
  EXPECT_EQ(printable("\xc0\xaf \xe0\x80\xaf \xed\xa0\x80 \xf4\x90\x80\x80"sv),
            R"(\xc0\xaf \xe0\x80\xaf \xed\xa0\x80 \xf4\x90\x80\x80)");
}

TEST(Printable, ShortensBetweenCharacters) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcd", 3), "abc");
  EXPECT_EQ(shortened("ab\u00e9", 3), "ab");
  EXPECT_EQ(shortened("ab\u00e9", 4), "ab\u00e9");
}

}  // namespace
}  // namespace aiacc

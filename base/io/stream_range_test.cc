#include "base/io/stream_range.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace aiacc::io {
namespace {

TEST(StreamRange, IsANumberARangeOrAuto) {
  EXPECT_EQ(StreamRange::parse("N", "1"), StreamRange(1));
  EXPECT_EQ(StreamRange::parse("N", "64"), StreamRange(64, 64));
  EXPECT_EQ(StreamRange::parse("N", "2-8"), StreamRange(2, 8));
  EXPECT_EQ(StreamRange::parse("N", "3-3"), StreamRange(3));
  EXPECT_EQ(StreamRange::parse("N", "auto"), StreamRange(1, 64));
}

TEST(StreamRange, AnythingElseIsRefusedInOneSentence) {
  for (const char* text :
       {"0", "65", "-1", "8-2", "1-65", "1-", "-", "1-2-3", "two", "4 ", "+4", "99999999999", "Auto"}) {
    try {
      StreamRange::parse("AIACC_TCP_STREAMS", text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.message(), "AIACC_TCP_STREAMS: '" + std::string(text) +
                                     "' is no number of connections; it takes 1 to 64, a range as in 2-8, or auto");
    }
  }
}

}  // namespace
}  // namespace aiacc::io

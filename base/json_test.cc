#include "base/json.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace aiacc {
namespace {

TEST(Json, WritesAndReadsBackWhatItWrote) {
  const Json json = Json::Object{{"name", "a \"b\" \\ \n\x01 \xC3\xA9"},
                                 {"list", Json::Array{1, -2, 2.5, true, false, Json()}},
                                 {"empty", Json::Object{}},
                                 {"most", std::numeric_limits<std::int64_t>::max()}};
  const std::string text =
      "{\"name\":\"a \\\"b\\\" \\\\ \\n\\u0001 \xC3\xA9\",\"list\":[1,-2,2.5,true,false,null],\"empty\":{},"
      "\"most\":9223372036854775807}";
  EXPECT_EQ(json.text(), text);
  const Json read = Json::parse(text);
  EXPECT_EQ(read.text(), text);
  EXPECT_EQ(read["list"].items().size(), 6u);
  EXPECT_EQ(read["list"].items()[2].as_double(), 2.5);
  EXPECT_EQ(read["most"].as_integer(), std::numeric_limits<std::int64_t>::max());
  EXPECT_TRUE(read["nothing"]["of"]["the"].is_null());
}

TEST(Json, BytesThatAreNoUtf8AndNumbersThatAreNone) {
  EXPECT_EQ(Json("a\xFF\xC3").text(), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(Json("\xED\xA0\x80").text(), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"") << "a surrogate";
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).text(), "null");
}

TEST(Json, Escapes) {
  EXPECT_EQ(Json::parse(R"(  "\u0041\t\/\uD83D\uDE00" )").as_string(), "A\t/\xF0\x9F\x98\x80");
  EXPECT_EQ(Json::parse("1e3").as_double(), 1000);
}

TEST(Json, SaysWhereTextIsNone) {
  for (const char* bad : {"", "{", "[1,]", "{\"a\" 1}", "\"a", "tru", "1 2", "\"\\q\"", "\"\\u12\"", "1x", "-"}) {
    EXPECT_THROW(Json::parse(bad), Error) << bad;
  }
  EXPECT_THROW(Json::parse(std::string(100'000, '[')), Error);
  try {
    Json::parse("[1,]");
  } catch (const Error& error) {
    EXPECT_STREQ(error.message().c_str(), "no JSON at byte 3 of 4: a value is missing");
  }
}

}  // namespace
}  // namespace aiacc

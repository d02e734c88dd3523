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
  EXPECT_EQ(Json(1000.0).text(), "1000.0") << "a real number is read back as one";
  EXPECT_EQ(Json::parse(Json(1000.0).text()).kind(), Json::Kind::kDouble);
}

TEST(Json, Escapes) {
  EXPECT_EQ(Json::parse(R"(  "\u0041\t\/\uD83D\uDE00" )").as_string(), "A\t/\xF0\x9F\x98\x80");
  EXPECT_EQ(Json::parse("1e3").as_double(), 1000);
}

TEST(Json, KindsAndTheNumbersBetweenThem) {
  const Json json = Json::parse("[null,true,1,1.0,\"s\",[],{},9223372036854775808,-9223372036854775808]");
  const auto kind = [&](std::size_t at) { return json.items()[at].kind(); };
  EXPECT_EQ(kind(0), Json::Kind::kNull);
  EXPECT_EQ(kind(1), Json::Kind::kBool);
  EXPECT_EQ(kind(2), Json::Kind::kInteger);
  EXPECT_EQ(kind(3), Json::Kind::kDouble);
  EXPECT_EQ(kind(4), Json::Kind::kString);
  EXPECT_EQ(kind(5), Json::Kind::kArray);
  EXPECT_EQ(kind(6), Json::Kind::kObject);
  EXPECT_EQ(kind(7), Json::Kind::kDouble) << "more than 64 bits with a sign hold";
  EXPECT_EQ(json.items()[7].as_double(), 9223372036854775808.0);
  EXPECT_EQ(json.items()[8].as_integer(), std::numeric_limits<std::int64_t>::min());
}

TEST(Json, SaysWhereTextIsNone) {
  for (const char* bad : {"", "{", "[1,]", "{\"a\" 1}", "\"a", "tru", "1 2", "\"\\q\"", "\"\\u12\"", "1x", "-"}) {
    EXPECT_THROW(Json::parse(bad), Error) << bad;
  }
  EXPECT_THROW(Json::parse(std::string(100'000, '[')), Error);
  EXPECT_THROW(Json::parse("\"\xFF\""), Error) << "no UTF-8";
  EXPECT_THROW(Json::parse("1e999"), Error) << "no double holds it";
  try {
    Json::parse("[1,]");
  } catch (const Error& error) {
    EXPECT_TRUE(error.message().starts_with("no JSON at byte 4 of 4: ")) << error.message();
    EXPECT_NE(error.message().find("unexpected ']'"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace aiacc

#include "base/io/resolve.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace aiacc::io {
namespace {

std::string refusal(const std::string& text) {
  try {
    HostPort::parse("WHERE", text);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.message();
  }
}

TEST(HostPort, ReadsNamesAndBothKindsOfAddresses) {
  EXPECT_EQ(HostPort::parse("WHERE", "node-7:4242").host, "node-7");
  EXPECT_EQ(HostPort::parse("WHERE", "node-7:4242").port, 4242);
  EXPECT_EQ(HostPort::parse("WHERE", "192.0.2.1:1").host, "192.0.2.1");
  EXPECT_EQ(HostPort::parse("WHERE", "[2001:db8::1]:65535").host, "2001:db8::1");
}

TEST(HostPort, SaysWhatIsWrong) {
  EXPECT_NE(refusal("node-7").find("WHERE=node-7: the port is missing; write host:4242"), std::string::npos);
  EXPECT_NE(refusal(":4242").find("the host is missing"), std::string::npos);
  EXPECT_NE(refusal("2001:db8::1:4242").find("brackets"), std::string::npos);
  EXPECT_NE(refusal("[node-7]:4242").find("no IPv6 address"), std::string::npos);
  for (const char* port : {"", "0", "65536", "x", "42x", "-1"}) {
    EXPECT_NE(refusal(std::string("a:") + port).find("the port is not a number from 1 to 65535"), std::string::npos)
        << port;
  }
}

TEST(Resolve, NumbersStandForThemselves) {
  EXPECT_EQ(resolve({"192.0.2.1", 5}, std::chrono::seconds(50)), std::vector{Address::tcp("192.0.2.1", 5)});
  EXPECT_EQ(resolve({"2001:db8::1", 5}, std::chrono::seconds(50)), std::vector{Address::tcp("2001:db8::1", 5)});
}

TEST(Resolve, NamesAreLookedUpAndUnknownOnesNamed) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not know the threads that the resolver starts inside the C library";
#endif
  const auto here = resolve({"localhost", 5}, std::chrono::seconds(50));
  EXPECT_TRUE(std::all_of(here.begin(), here.end(), [](const Address& one) { return is_loopback(one.name); }));
  EXPECT_FALSE(here.empty());
  try {
    resolve({"nowhere.invalid", 5}, std::chrono::seconds(50));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kPeerFailed);
    EXPECT_NE(error.message().find("'nowhere.invalid'"), std::string::npos);
  }
}

TEST(Resolve, KnowsTheLoopback) {
  for (const char* one : {"127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"}) EXPECT_TRUE(is_loopback(one)) << one;
  for (const char* one : {"10.0.0.1", "::", "fd00::1", "::ffff:10.0.0.1", "x"}) EXPECT_FALSE(is_loopback(one)) << one;
  EXPECT_TRUE(is_numeric_address("::1"));
  EXPECT_FALSE(is_numeric_address("localhost"));
}

}  // namespace
}  // namespace aiacc::io

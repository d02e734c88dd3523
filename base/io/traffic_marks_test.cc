#include "base/io/traffic_marks.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/fd.h"

namespace aiacc::io {
namespace {

std::string refusal_of_marks(const std::string& text) {
  try {
    TrafficMarks::parse("AIACC_TC_LAT", text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.message();
  }
  return "";
}

TEST(TrafficMarks, AreReadFromText) {
  const TrafficMarks marks = TrafficMarks::parse("AIACC_TC_LAT", "dscp=34,priority=4");
  EXPECT_EQ(marks.dscp, 34);
  EXPECT_EQ(marks.priority, 4);
  EXPECT_EQ(TrafficMarks::parse("AIACC_TC_LAT", marks.text()), marks);
  EXPECT_EQ(TrafficMarks::parse("AIACC_TC_LAT", "priority=0").text(), "priority=0");
  EXPECT_TRUE(TrafficMarks::parse("AIACC_TC_LAT", "").none());
}

TEST(TrafficMarks, HaveAShareAndARate) {
  const TrafficMarks marks = TrafficMarks::parse("AIACC_TC_BULK", "share=9,rate=500mbit");
  EXPECT_EQ(marks.share, 9);
  EXPECT_EQ(marks.rate, 500'000'000u);
  EXPECT_EQ(marks.text(), "share=9,rate=500mbit");
  for (const char* text : {"rate=8kbit", "rate=10000gbit", "rate=8001bit", "rate=1500kbit"}) {
    EXPECT_EQ(TrafficMarks::parse("AIACC_TC_BULK", text).text(), text);
  }
  EXPECT_EQ(TrafficMarks::parse("AIACC_TC_BULK", "rate=2000mbit").text(), "rate=2gbit");
  EXPECT_TRUE(TrafficMarks::parse("x", "share=9").none()) << "of a share the network sees nothing";
  EXPECT_TRUE(TrafficMarks::parse("x", "share=9").same_flow({}));
  EXPECT_FALSE(marks.same_flow({}));
}

TEST(TrafficMarks, HaveADelayThatNoSocketHas) {
  const TrafficMarks marks = TrafficMarks::parse("AIACC_TC_BULK", "share=9,delay=2ms");
  EXPECT_EQ(marks.delay, std::chrono::milliseconds(2));
  EXPECT_EQ(marks.text(), "share=9,delay=2ms");
  EXPECT_EQ(TrafficMarks::parse("x", "delay=1500us").text(), "delay=1500us");
  EXPECT_TRUE(marks.none());
  EXPECT_FALSE(marks.same_flow({})) << "others have connections that it does not hold back";
  const TrafficMarks any = TrafficMarks::parse("x", "delay=none");
  EXPECT_EQ(any.text(), "delay=none");
  EXPECT_FALSE(any.limits_delay());
  EXPECT_TRUE(any.same_flow({}));
}

TEST(TrafficMarks, MaySayThatTheNetworkLosesNothing) {
  const TrafficMarks marks = TrafficMarks::parse("AIACC_TC_BULK", "dscp=26,lossless=yes");
  EXPECT_TRUE(marks.is_lossless());
  EXPECT_EQ(marks.text(), "dscp=26,lossless=yes");
  EXPECT_FALSE(marks.same_flow(TrafficMarks::parse("x", "dscp=26"))) << "losses of another class are not its own";
  const TrafficMarks not_so = TrafficMarks::parse("x", "lossless=no");
  EXPECT_EQ(not_so.text(), "lossless=no");
  EXPECT_TRUE(not_so.same_flow({}));
}

TEST(TrafficMarks, OtherTextIsRefusedWithASentence) {
  EXPECT_EQ(
      refusal_of_marks("dscp=64"),
      "AIACC_TC_LAT: 'dscp=64' is nothing that a traffic class has; it takes dscp=0 to 63, priority=0 to 15, "
      "share=1 to 1000, rate=8kbit to 10000gbit, as in rate=500mbit, delay=10us to 1s, as in delay=2ms, or none, and "
      "lossless=yes or no, separated by commas");
  EXPECT_EQ(refusal_of_marks("dscp=1,dscp=1"), "AIACC_TC_LAT: 'dscp' is there twice");
  for (const char* text : {"dscp",
                           "dscp=",
                           "dscp=x",
                           "dscp=1x",
                           "dscp=-1",
                           "priority=16",
                           "DSCP=1",
                           "=1",
                           "dscp=1,",
                           ",dscp=1",
                           "dscp=1,,priority=1",
                           "lossless=1",
                           "lossless=",
                           "lossless=yes,lossless=no",
                           "delay=",
                           "delay=0",
                           "delay=9us",
                           "delay=1001ms",
                           "delay=x",
                           "delay=1ms,delay=1ms",
                           "share=0",
                           "share=1001",
                           "rate=1",
                           "rate=mbit",
                           "rate=-1mbit",
                           "rate=7999bit",
                           "rate=10001gbit",
                           "rate=1.5gbit",
                           "rate=1mbit2"}) {
    EXPECT_NE(refusal_of_marks(text), "") << text;
  }
}

int option_of(const Fd& socket, int level, int option) {
  int value = -1;
  socklen_t bytes = sizeof value;
  EXPECT_EQ(getsockopt(socket.get(), level, option, &value, &bytes), 0);
  return value;
}

// The priority is set last: IP_TOS 40 alone would make it 0.
TEST(TrafficMarks, AreSetOnSocketsOfBothFamilies) {
  const TrafficMarks marks = TrafficMarks::parse("AIACC_TC_BULK", "dscp=10,priority=2,rate=80mbit");
  const Fd v4(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(mark_traffic(v4.get(), marks), "");
  EXPECT_EQ(option_of(v4, IPPROTO_IP, IP_TOS), 10 << 2);
  EXPECT_EQ(option_of(v4, SOL_SOCKET, SO_PRIORITY), 2);
  EXPECT_EQ(option_of(v4, SOL_SOCKET, SO_MAX_PACING_RATE), 10'000'000);
  const Fd v6(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (v6) {
    EXPECT_EQ(mark_traffic(v6.get(), marks), "");
    EXPECT_EQ(option_of(v6, IPPROTO_IPV6, IPV6_TCLASS), 10 << 2);
    EXPECT_EQ(option_of(v6, IPPROTO_IP, IP_TOS), 10 << 2) << "of an IPv4 peer of a listener of both";
    EXPECT_EQ(option_of(v6, SOL_SOCKET, SO_PRIORITY), 2);
  }
  EXPECT_EQ(mark_traffic(-1, marks), "");
}

}  // namespace
}  // namespace aiacc::io

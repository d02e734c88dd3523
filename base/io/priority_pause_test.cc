#include "base/io/priority_pause.h"

#include <gtest/gtest.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include <array>
#include <cstring>
#include <initializer_list>
#include <vector>

namespace aiacc::io {
namespace {

using Text = std::vector<std::byte>;

template <typename Value>
void append(Text& text, const Value& value) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
  text.insert(text.end(), bytes, bytes + sizeof value);
  text.resize((text.size() + 3) / 4 * 4);
}

Text attribute(unsigned short type, const Text& value) {
  Text text;
  append(text, rtattr{static_cast<unsigned short>(sizeof(rtattr) + value.size()), type});
  text.insert(text.end(), value.begin(), value.end());
  return text;
}

template <typename Value>
Text attribute_of(unsigned short type, const Value& value) {
  Text text;
  append(text, rtattr{sizeof(rtattr) + sizeof value, type});
  append(text, value);
  return text;
}

Text joined(std::initializer_list<Text> parts) {
  Text all;
  for (const Text& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// As mlx5 answers: PFC on priority 3, DSCP 26 to priority 3 and DSCP 48 to 6; the entry of another selector is no DSCP.
Text answer() {
  ieee_pfc pfc{};
  pfc.pfc_cap = 8;
  pfc.pfc_en = 1 << 3;
  const Text table = joined({attribute_of(DCB_ATTR_IEEE_APP, dcb_app{IEEE_8021QAZ_APP_SEL_DSCP, 5, 26}),
                             attribute_of(DCB_ATTR_IEEE_APP, dcb_app{1, 4, 34}),
                             attribute_of(DCB_ATTR_IEEE_APP, dcb_app{IEEE_8021QAZ_APP_SEL_DSCP, 6, 48})});
  const Text ieee = joined({attribute_of(DCB_ATTR_IEEE_ETS, ieee_ets{}), attribute_of(DCB_ATTR_IEEE_PFC, pfc),
                            attribute(DCB_ATTR_IEEE_APP_TABLE, table)});
  const Text body = joined(
      {attribute_of(DCB_ATTR_IFNAME, std::array<char, 8>{"eth2"}), attribute(DCB_ATTR_IEEE | NLA_F_NESTED, ieee)});
  Text all;
  nlmsghdr header{};
  header.nlmsg_len = static_cast<unsigned>(NLMSG_HDRLEN + sizeof(dcbmsg) + body.size());
  header.nlmsg_type = RTM_GETDCB;
  append(all, header);
  append(all, dcbmsg{0, DCB_CMD_IEEE_GET, 0});
  all.insert(all.end(), body.begin(), body.end());
  return all;
}

TEST(PriorityPause, AnAnswerSaysWhereItIsOnAndWhichPriorityADscpHas) {
  const PriorityPause pause = read_dcb_answer(answer());
  ASSERT_TRUE(pause.enabled);
  EXPECT_EQ(*pause.enabled, 8u);
  EXPECT_TRUE(pause.on(3));
  EXPECT_FALSE(pause.on(5));
  EXPECT_EQ(pause.priority_of_dscp, (std::map<int, int>{{26, 5}, {48, 6}}));
  EXPECT_EQ(pause.priority_of(26), 5);
  EXPECT_EQ(pause.priority_of(34), 4) << "the driver's";
}

TEST(PriorityPause, AnAnswerThatIsCutOffOrAnErrorSaysLess) {
  const Text whole = answer();
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_LE(read_dcb_answer(std::span(whole).first(bytes)).priority_of_dscp.size(), 2u);
  }
  EXPECT_FALSE(read_dcb_answer(std::span(whole).first(40)).enabled);
  Text refused = whole;
  const unsigned short error = NLMSG_ERROR;
  std::memcpy(refused.data() + offsetof(nlmsghdr, nlmsg_type), &error, sizeof error);
  EXPECT_FALSE(read_dcb_answer(refused).enabled);
}

TEST(PriorityPause, ADeviceWithoutItSaysNothing) {
  for (const char* device : {"lo", "none-such0", ""}) {
    const PriorityPause pause = priority_pause(device);
    EXPECT_FALSE(pause.enabled) << device;
    EXPECT_TRUE(pause.counters.empty()) << device;
  }
}

}  // namespace
}  // namespace aiacc::io

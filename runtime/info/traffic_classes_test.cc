#include "runtime/info/traffic_classes.h"

#include <gtest/gtest.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>

#include <cstring>

#include "transports/message.h"

namespace aiacc::info {
namespace {

TEST(TrafficClassesReport, SaysWhoseConnectionsAClassTakes) {
  ConfigValues values;
  values.tc_lat = "dscp=34,share=3";
  values.tc_ctrl = "dscp=34";
  const std::vector<ClassReport> classes = traffic_classes(values);
  ASSERT_EQ(classes.size(), kTrafficClasses);
  EXPECT_EQ(classes[0].connection, "latency");
  EXPECT_EQ(classes[1].connection, "latency");
  EXPECT_EQ(classes[2].connection, "bulk");
  EXPECT_EQ(classes[3].connection, "bulk");
  const Json report = to_json(classes, {});
  EXPECT_TRUE(report["classes"].items()[0]["share"].is_null());
  EXPECT_EQ(report["classes"].items()[1]["share"].as_integer(), 3);
  EXPECT_EQ(report["classes"].items()[2]["share"].as_integer(), 9);
  EXPECT_TRUE(judge(classes).empty());
}

TEST(TrafficClassesReport, SaysWhatTheHostDoesNotGrant) {
  ConfigValues values;
  values.tc_bulk = "priority=7";
  const auto refuse = [](const io::TrafficMarks& marks) { return marks.priority ? "no priority" : ""; };
  const Findings findings = judge(traffic_classes(values, {}, refuse));
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].about, "AIACC_TC_BULK");
  EXPECT_EQ(findings[0].sentence, "no priority; a priority above 6 needs CAP_NET_ADMIN");
}

std::vector<std::byte> message(int device, std::uint32_t parent, const char* kind) {
  struct {
    nlmsghdr header;
    tcmsg body;
    rtattr attribute;
    char text[16];
  } one = {};
  one.header.nlmsg_len = sizeof one;
  one.header.nlmsg_type = RTM_NEWQDISC;
  one.body.tcm_ifindex = device;
  one.body.tcm_parent = parent;
  one.attribute.rta_len = sizeof one.attribute + sizeof one.text;
  one.attribute.rta_type = TCA_KIND;
  std::strncpy(one.text, kind, sizeof one.text);
  std::vector<std::byte> bytes(sizeof one);
  std::memcpy(bytes.data(), &one, sizeof one);
  return bytes;
}

TEST(TrafficClassesReport, ReadsTheDisciplinesAtTheRootOfEachDevice) {
  std::vector<std::byte> dump;
  for (const auto& each : {message(1, TC_H_ROOT, "noqueue"), message(2, TC_H_ROOT, "mq"), message(2, 0x10000, "fq")}) {
    dump.insert(dump.end(), each.begin(), each.end());
  }
  const auto name = [](unsigned index) { return "eth" + std::to_string(index); };
  const std::vector<QueueingDiscipline> found = read_disciplines(dump, name);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].device + " " + found[0].kind, "eth1 noqueue");
  EXPECT_EQ(found[1].device + " " + found[1].kind, "eth2 mq");
  for (std::size_t bytes = 0; bytes < dump.size(); ++bytes) {
    EXPECT_LE(read_disciplines(std::span(dump).first(bytes), name).size(), 2u) << "cut off";
  }
}

}  // namespace
}  // namespace aiacc::info

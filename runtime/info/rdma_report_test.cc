// What the doctor says of RDMA devices, from fake trees and from values.
#include "runtime/info/rdma_report.h"

#include <gtest/gtest.h>

#include "base/io/rdma_tree_test.h"

namespace aiacc::info {
namespace {

constexpr char kGidOfIpv4[] = "0000:0000:0000:0000:0000:ffff:0a63:0001";
constexpr char kLinkLocal[] = "fe80:0000:0000:0000:5054:00ff:fe99:0001";

class RdmaDoctor : public ::testing::Test {
 protected:
  RdmaDoctor() {
    tree_.add_device("mlx5_0", "mlx5_core");
    tree_.add_port("mlx5_0", 1);
  }
  RdmaReport read(std::vector<std::string> ucx = {}) const { return RdmaReport::read(ucx, tree_.root()); }
  // "hurts: SENTENCE\n" of each.
  static std::string said(const RdmaReport& report) {
    std::string text;
    for (const Finding& one : judge(report)) {
      EXPECT_EQ(one.about, "rdma");
      EXPECT_FALSE(one.cure.empty());
      text += (one.level == Finding::Level::kHurts ? "hurts: " : "note: ") + one.sentence + "\n";
    }
    return text;
  }

  io::RdmaTree tree_;
};

TEST_F(RdmaDoctor, WhatIsRightIsNotFound) {
  tree_.add_gid("mlx5_0", 1, 3, kGidOfIpv4);
  tree_.write(tree_.port("mlx5_0", 1) + "hw_counters/out_of_sequence", "0");
  const RdmaReport report = read();
  EXPECT_EQ(said(report), "");
  EXPECT_TRUE(report.usable());
}

TEST_F(RdmaDoctor, PortsThatAreDownHurtIfNoneIsUp) {
  tree_.add_gid("mlx5_0", 1, 3, kGidOfIpv4);
  tree_.add_port("mlx5_0", 2, "1: DOWN");
  EXPECT_EQ(said(read()), "note: port 2 of mlx5_0 is DOWN (Disabled), so ranks do not use it\n");
  tree_.write(tree_.port("mlx5_0", 1) + "state", "1: DOWN");
  tree_.write(tree_.port("mlx5_0", 1) + "phys_state", "3: Disabled");
  EXPECT_EQ(said(read()),
            "hurts: port 1 of mlx5_0 is DOWN (Disabled), so ranks do not use it\n"
            "hurts: port 2 of mlx5_0 is DOWN (Disabled), so ranks do not use it\n");
  EXPECT_FALSE(read().usable());
  EXPECT_NE(judge(read())[0].cure.find("ip link set none-such0 up"), std::string::npos);
}

TEST_F(RdmaDoctor, GidsOfTheFirstVersionHurt) {
  EXPECT_EQ(said(read()), "hurts: port 1 of mlx5_0 has no GID, so nobody can reach it\n");
  tree_.add_gid("mlx5_0", 1, 2, kGidOfIpv4, "IB/RoCE v1");
  EXPECT_EQ(said(read()),
            "hurts: port 1 of mlx5_0 has GIDs of RoCE v1 only, whose packets are not routed and carry no DSCP\n");
  tree_.add_gid("mlx5_0", 1, 1, kLinkLocal);
  EXPECT_TRUE(said(read()).starts_with("note: port 1 of mlx5_0 has no GID of RoCE v2 but link-local ones"))
      << said(read());
  tree_.add_gid("mlx5_0", 1, 3, kGidOfIpv4);
  EXPECT_EQ(said(read()), "");
}

TEST_F(RdmaDoctor, InfiniBandHasNoRoce) {
  tree_.add_device("mlx4_0", "mlx4_core");
  tree_.add_port("mlx4_0", 1, "4: ACTIVE", "InfiniBand");
  tree_.add_port("mlx4_0", 2, "2: INIT", "InfiniBand");
  tree_.add_gid("mlx5_0", 1, 3, kGidOfIpv4);
  EXPECT_EQ(said(read()), "note: port 2 of mlx4_0 is INIT (Disabled), so ranks do not use it\n");
  EXPECT_NE(judge(read())[0].cure.find("opensm"), std::string::npos);
}

TEST_F(RdmaDoctor, DevicesThatCannotBeOpenedHurt) {
  tree_.add_gid("mlx5_0", 1, 3, kGidOfIpv4);
  std::filesystem::remove_all(tree_.root() / "sys/class/infiniband_verbs");
  EXPECT_EQ(said(read()), "hurts: mlx5_0 has no device node here, so ranks do not use it\n");
  RdmaReport report = read();
  report.devices[0].device.node = "/dev/infiniband/uverbs0";
  EXPECT_EQ(said(report), "hurts: this user may not open /dev/infiniband/uverbs0 of mlx5_0, so ranks do not use it\n");
  EXPECT_FALSE(report.usable());
}

TEST_F(RdmaDoctor, CountedLossesAreNotes) {
  tree_.add_gid("mlx5_0", 1, 3, kGidOfIpv4);
  for (const char* name : {"packet_seq_err", "local_ack_timeout_err", "out_of_buffer", "rp_cnp_ignored"}) {
    tree_.write(tree_.port("mlx5_0", 1) + "hw_counters/" + name, "12");
  }
  tree_.write(tree_.port("mlx5_0", 1) + "hw_counters/np_ecn_marked_roce_packets", "99");
  EXPECT_EQ(said(read()),
            "note: port 1 of mlx5_0 has counted 12 packets that a peer missed: the network has lost or reordered some "
            "(packet_seq_err)\n"
            "note: port 1 of mlx5_0 has counted 12 acknowledgements that did not come in time (local_ack_timeout_err)\n"
            "note: port 1 of mlx5_0 has counted 12 packets for which the receiver had no buffer (out_of_buffer)\n"
            "note: port 1 of mlx5_0 has counted 12 notices of congestion that it did not heed (rp_cnp_ignored)\n");
  EXPECT_EQ(to_json(read()).items()[0]["ports"].items()[0]["counters"]["np_ecn_marked_roce_packets"].as_integer(), 99);
}

TEST_F(RdmaDoctor, PfcIsLookedForOnThePriorityOfTheMarks) {
  tree_.add_gid("mlx5_0", 1, 3, kGidOfIpv4);
  RdmaReport report = read();
  report.devices[0].ports[0].pause.enabled = 1 << 3;
  EXPECT_EQ(said(report), "") << "DSCP 26 is of priority 3";
  report.devices[0].ports[0].pause.priority_of_dscp[26] = 5;
  EXPECT_EQ(
      said(report),
      "note: port 1 of mlx5_0 has no PFC on priority 5, which its packets have (DSCP 26): a full switch loses some "
      "of them\n");
  report.devices[0].ports[0].pause.enabled = 1 << 5;
  report.devices[0].ports[0].pause.counters = {{"rx_prio3_pause_duration", 7}, {"rx_prio5_pause_duration", 4711}};
  EXPECT_EQ(said(report),
            "note: the network has told port 1 of mlx5_0 to pause priority 5 for 4711 us since it is up\n");
  const Json port = to_json(report).items()[0]["ports"].items()[0];
  EXPECT_EQ(port["priority"].as_integer(), 5);
  EXPECT_EQ(port["lossless_priorities"].items().size(), 1u);
}

TEST_F(RdmaDoctor, TheTrafficClassIsTheForcedOneOrTheUsers) {
  tree_.add_gid("mlx5_0", 1, 3, kGidOfIpv4);
  EXPECT_EQ(to_json(read()).items()[0]["ports"].items()[0]["dscp"].as_integer(), 26);
  EXPECT_EQ(
      to_json(read({"UCX_TLS=rc", "UCX_IB_TRAFFIC_CLASS=136"})).items()[0]["ports"].items()[0]["dscp"].as_integer(),
      34);
  EXPECT_EQ(to_json(read({"UCX_IB_TRAFFIC_CLASS=auto"})).items()[0]["ports"].items()[0]["dscp"].as_integer(), 26);
  tree_.write("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=96");
  EXPECT_EQ(to_json(read()).items()[0]["ports"].items()[0]["dscp"].as_integer(), 24);
  EXPECT_EQ(said(read()),
            "note: port 1 of mlx5_0 gives each packet traffic class 96, whatever AIACC_UCX_IB_TRAFFIC_CLASS says\n");
}

}  // namespace
}  // namespace aiacc::info

#include "base/io/rdma_devices.h"

#include <gtest/gtest.h>

#include "base/io/rdma_tree_test.h"

namespace aiacc::io {
namespace {

constexpr char kGidOfIpv4[] = "0000:0000:0000:0000:0000:ffff:0a63:0001";

TEST(RdmaDevices, AHostWithoutThemHasNone) {
  const RdmaTree tree;
  EXPECT_TRUE(rdma_devices(tree.root()).empty());
  EXPECT_TRUE(rdma_devices(tree.root() / "none").empty());
  EXPECT_TRUE(rdma_counters("mlx5_0", 1, tree.root()).empty());
}

TEST(RdmaDevices, PortsGidsAndMarksAreRead) {
  RdmaTree tree;
  tree.add_device("mlx5_1", "mlx5_core", false);
  tree.add_port("mlx5_1", 1, "2: INIT", "InfiniBand");
  tree.add_device("mlx5_0", "mlx5_core");
  tree.write("sys/class/infiniband/mlx5_0/device/numa_node", "1");
  tree.add_port("mlx5_0", 1, "1: DOWN");
  tree.add_port("mlx5_0", 10);
  tree.add_port("mlx5_0", 2);
  tree.add_gid("mlx5_0", 2, 11, kGidOfIpv4);
  tree.add_gid("mlx5_0", 2, 3, "fe80:0000:0000:0000:5054:00ff:fe99:0001", "IB/RoCE v1");
  tree.write("sys/class/infiniband/mlx5_0/tc/2/traffic_class", "Global tclass=104");
  tree.write("sys/kernel/config/rdma_cm/mlx5_0/ports/2/default_roce_tos", "136");

  const std::vector<RdmaDevice> devices = rdma_devices(tree.root());
  ASSERT_EQ(devices.size(), 2u);
  const RdmaDevice &first = devices[0], &second = devices[1];
  EXPECT_EQ(first.name + " " + first.driver + " " + first.firmware, "mlx5_0 mlx5_core 16.35.2000");
  EXPECT_EQ(first.numa, 1);
  EXPECT_EQ(first.node, (tree.root() / "dev/infiniband/uverbs0").string());
  EXPECT_TRUE(first.usable && first.has_active_port() && !first.efa());
  ASSERT_EQ(first.ports.size(), 3u);
  EXPECT_EQ(first.ports[0].state + " " + first.ports[0].physical, "DOWN Disabled");
  EXPECT_EQ(first.ports[2].number, 10);
  const RdmaPort& port = first.ports[1];
  EXPECT_TRUE(port.active() && port.ethernet());
  EXPECT_EQ(port.rate, "100 Gb/sec (4X EDR)");
  ASSERT_EQ(port.gids.size(), 2u) << "without the one that is not set";
  EXPECT_EQ(port.gids[0].index, 3);
  EXPECT_EQ(port.gids[0].type, "IB/RoCE v1");
  EXPECT_EQ(port.gids[1].text, kGidOfIpv4);
  EXPECT_EQ(port.net_device(), "none-such0");
  EXPECT_EQ(port.forced_traffic_class, 104);
  EXPECT_EQ(port.rdma_cm_tos, 136);
  EXPECT_EQ(first.ports[0].forced_traffic_class, std::nullopt);

  EXPECT_FALSE(second.usable) << "it has no node";
  EXPECT_EQ(second.node, "");
  EXPECT_FALSE(second.has_active_port());
  EXPECT_EQ(second.ports[0].state, "INIT");
  EXPECT_EQ(second.numa, std::nullopt);
}

TEST(RdmaDevices, CountersAreThoseThatAreNumbers) {
  RdmaTree tree;
  tree.add_device("mlx5_0", "mlx5_core");
  tree.add_port("mlx5_0", 1);
  const std::string port = tree.port("mlx5_0", 1);
  tree.write(port + "counters/port_rcv_data", "18446744073709551615");
  tree.write(port + "counters/port_xmit_wait", "N/A (no PMA)");
  tree.write(port + "hw_counters/out_of_sequence", "7");
  tree.write(port + "hw_counters/lifespan", "10");
  const std::map<std::string, std::uint64_t> counters = rdma_counters("mlx5_0", 1, tree.root());
  EXPECT_EQ(counters, (std::map<std::string, std::uint64_t>{{"out_of_sequence", 7}, {"port_rcv_data", ~0ull}}));
}

}  // namespace
}  // namespace aiacc::io

#include "runtime/bootstrap/networks.h"

#include <gtest/gtest.h>

#include "base/io/rdma_tree_test.h"

namespace aiacc {
namespace {

TEST(RdmaDevicesOfRanks, EfaIsToldFromWhatUcxDrives) {
  io::RdmaTree tree;
  EXPECT_FALSE(usable_rdma_devices(tree.root()).efa);
  tree.add_device("rdmap0s6", "efa");
  tree.add_port("rdmap0s6", 1);
  EXPECT_TRUE(usable_rdma_devices(tree.root()).efa);
  EXPECT_TRUE(usable_rdma_devices(tree.root()).others.empty());
  tree.add_device("mlx5_0", "mlx5_core");
  tree.add_port("mlx5_0", 1, "1: DOWN");
  tree.add_port("mlx5_0", 2);
  EXPECT_TRUE(usable_rdma_devices(tree.root()).efa);
  EXPECT_EQ(usable_rdma_devices(tree.root()).others, std::vector<std::string>{"mlx5_0"});
}

TEST(RdmaDevicesOfRanks, APortThatIsDownAndADeviceThatCannotBeOpenedAreNotUsed) {
  io::RdmaTree tree;
  tree.add_device("mlx5_0", "mlx5_core");
  tree.add_port("mlx5_0", 1, "1: DOWN");
  tree.add_device("mlx5_1", "mlx5_core", false);
  tree.add_port("mlx5_1", 1);
  EXPECT_TRUE(usable_rdma_devices(tree.root()).others.empty());
}

TEST(RdmaDevicesOfRanks, UcxIsNotTakenUnlessItUsesOne) {
  const std::string text = "UCX 1.13.1: tcp/lo, tcp/eth0, rc_verbs/mlx5_10:1";
  EXPECT_TRUE(uses_one_of({"mlx5_0", "mlx5_10"}, text));
  EXPECT_FALSE(uses_one_of({"mlx5_1", "eth0"}, text));
  EXPECT_FALSE(uses_one_of({}, text));
}

TEST(RdmaDevicesOfRanks, UcxIsNotOpenedWhereItCannotLockItsBuffers) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const std::vector<std::string> none, tcp = {"UCX_TLS=tcp"}, device = {"mlx5_0"};
  EXPECT_EQ(
      obstacle_to_ucx(device, none, 65536),
      "a process may lock 65536 bytes of memory, and UCX needs 134217728 of them for mlx5_0; 'ulimit -l unlimited', "
      "or AIACC_UCX_TLS=tcp");
  EXPECT_EQ(obstacle_to_ucx(device, none, 128 * kMiB), "");
  EXPECT_EQ(obstacle_to_ucx(device, none, std::nullopt), "");
  EXPECT_EQ(obstacle_to_ucx(device, tcp, 65536), "");
  EXPECT_EQ(obstacle_to_ucx(none, none, 65536), "") << "UCX over TCP locks nothing";
}

}  // namespace
}  // namespace aiacc

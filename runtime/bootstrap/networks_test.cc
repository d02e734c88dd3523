#include "runtime/bootstrap/networks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace aiacc {
namespace {

// A folder like /sys/class/infiniband.
class Devices : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(name_), nullptr); }
  void TearDown() override { std::filesystem::remove_all(name_); }
  void add(const std::string& device, const std::string& driver) {
    std::filesystem::create_directories(folder() / device / "device");
    std::filesystem::create_symlink("/sys/bus/pci/drivers/" + driver, folder() / device / "device/driver");
  }
  std::filesystem::path folder() const { return name_; }

 private:
  char name_[32] = "/tmp/aiacc-devices-XXXXXX";
};

TEST_F(Devices, EfaIsToldFromWhatUcxDrives) {
  EXPECT_FALSE(rdma_devices(folder()).any());
  EXPECT_FALSE(rdma_devices(folder() / "none").any());
  add("rdmap0s6", "efa");
  EXPECT_TRUE(rdma_devices(folder()).efa);
  EXPECT_FALSE(rdma_devices(folder()).other);
  add("mlx5_0", "mlx5_core");
  EXPECT_TRUE(rdma_devices(folder()).efa);
  EXPECT_TRUE(rdma_devices(folder()).other);
}

}  // namespace
}  // namespace aiacc

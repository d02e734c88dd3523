// A file system like that of a host with RDMA devices, in a folder that is removed with this object. What drivers write there was taken
// from their sources: "4: ACTIVE", a GID that is not set, a type that cannot be read.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace aiacc::io {

class RdmaTree {
 public:
  RdmaTree() {
    if (mkdtemp(name_) == nullptr) throw std::runtime_error("no folder for a tree");
  }
  ~RdmaTree() { std::filesystem::remove_all(name_); }
  RdmaTree(const RdmaTree&) = delete;
  RdmaTree& operator=(const RdmaTree&) = delete;

  std::filesystem::path root() const { return name_; }

  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  std::string port(const std::string& device, int port) const {
    return "sys/class/infiniband/" + device + "/ports/" + std::to_string(port) + "/";
  }

  // `node`: it has a device node, with the number of devices before it.
  void add_device(const std::string& name, const std::string& driver, bool node = true) {
    const std::string folder = "sys/class/infiniband/" + name;
    write(folder + "/fw_ver", "16.35.2000");
    std::filesystem::create_directories(root() / folder / "device");
    if (!driver.empty()) {
      std::filesystem::create_symlink("/sys/bus/pci/drivers/" + driver, root() / folder / "device/driver");
    }
    if (!node) return;
    const std::string verbs = "uverbs" + std::to_string(nodes_++);
    write("sys/class/infiniband_verbs/" + verbs + "/ibdev", name);
    write("dev/infiniband/" + verbs, "");
  }
  void add_port(const std::string& device, int number, const std::string& state = "4: ACTIVE",
                const std::string& layer = "Ethernet") const {
    const std::string folder = port(device, number);
    write(folder + "state", state);
    write(folder + "phys_state", state == "4: ACTIVE" ? "5: LinkUp" : "3: Disabled");
    write(folder + "link_layer", layer);
    write(folder + "rate", "100 Gb/sec (4X EDR)");
    write(folder + "gids/0", "0000:0000:0000:0000:0000:0000:0000:0000");
  }
  void add_gid(const std::string& device, int number, int index, const std::string& gid,
               const std::string& type = "RoCE v2") const {
    const std::string at = std::to_string(index), folder = port(device, number);
    write(folder + "gids/" + at, gid);
    write(folder + "gid_attrs/types/" + at, type);
    write(folder + "gid_attrs/ndevs/" + at, "none-such0");
  }

 private:
  char name_[32] = "/tmp/aiacc-rdma-XXXXXX";
  int nodes_ = 0;
};

}  // namespace aiacc::io

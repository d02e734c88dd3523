#include "base/io/rdma_devices.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

namespace aiacc::io {
namespace {

namespace fs = std::filesystem;

// The first line of a file; "" if it cannot be read: the kernel refuses some, such as the type of a GID that is not set.
std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::optional<std::uint64_t> number_in(std::string_view text) {
  const std::size_t first = text.find_first_of("0123456789");
  if (first == std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + first, text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// "4: ACTIVE" without its number.
std::string word_of(const fs::path& file) {
  const std::string line = line_of(file);
  const std::size_t colon = line.find(": ");
  return colon == std::string::npos ? line : line.substr(colon + 2);
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& each : fs::directory_iterator(folder, none)) names.push_back(each.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<int> byte_in(std::string_view text) {
  const std::optional<std::uint64_t> value = number_in(text);
  return value && *value <= 255 ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

bool is_set(const std::string& gid) { return gid.find_first_not_of("0:") != std::string::npos; }

std::vector<RdmaGid> gids_of(const fs::path& port) {
  std::vector<RdmaGid> gids;
  for (const std::string& name : names_in(port / "gids")) {
    const std::string text = line_of(port / "gids" / name);
    const std::optional<std::uint64_t> index = number_in(name);
    if (!index || !is_set(text)) continue;
    gids.push_back({static_cast<int>(*index), text, line_of(port / "gid_attrs/types" / name),
                    line_of(port / "gid_attrs/ndevs" / name)});
  }
  std::sort(gids.begin(), gids.end(), [](const RdmaGid& a, const RdmaGid& b) { return a.index < b.index; });
  return gids;
}

RdmaPort port_of(const fs::path& root, const fs::path& device, const std::string& name, int number) {
  const fs::path folder = device / "ports" / name;
  RdmaPort port;
  port.number = number;
  port.state = word_of(folder / "state");
  port.physical = word_of(folder / "phys_state");
  port.link_layer = line_of(folder / "link_layer");
  port.rate = line_of(folder / "rate");
  port.gids = gids_of(folder);
  port.forced_traffic_class = byte_in(line_of(device / "tc" / name / "traffic_class"));
  const fs::path cm = root / "sys/kernel/config/rdma_cm" / device.filename() / "ports" / name;
  port.rdma_cm_tos = byte_in(line_of(cm / "default_roce_tos"));
  return port;
}

std::string node_of(const fs::path& root, const std::string& device) {
  const fs::path all = root / "sys/class/infiniband_verbs";
  for (const std::string& name : names_in(all)) {
    if (line_of(all / name / "ibdev") == device) return root / "dev/infiniband" / name;
  }
  return {};
}

}  // namespace

std::string RdmaPort::net_device() const {
  const auto found = std::find_if(gids.begin(), gids.end(), [](const RdmaGid& one) { return !one.device.empty(); });
  return found == gids.end() ? std::string() : found->device;
}

bool RdmaDevice::has_active_port() const noexcept {
  return std::any_of(ports.begin(), ports.end(), [](const RdmaPort& one) { return one.active(); });
}

std::vector<RdmaDevice> rdma_devices(const fs::path& root) {
  const fs::path all = root / "sys/class/infiniband";
  std::vector<RdmaDevice> devices;
  for (const std::string& name : names_in(all)) {
    const fs::path folder = all / name;
    std::error_code none;
    RdmaDevice& device = devices.emplace_back();
    device.name = name;
    device.driver = fs::read_symlink(folder / "device/driver", none).filename();
    device.firmware = line_of(folder / "fw_ver");
    if (const std::string numa = line_of(folder / "device/numa_node"); !numa.empty() && numa.front() != '-') {
      device.numa = byte_in(numa);
    }
    device.node = node_of(root, name);
    device.usable = !device.node.empty() && access(device.node.c_str(), R_OK | W_OK) == 0;
    for (const std::string& port : names_in(folder / "ports")) {
      const std::optional<std::uint64_t> number = number_in(port);
      if (number) device.ports.push_back(port_of(root, folder, port, static_cast<int>(*number)));
    }
    std::sort(device.ports.begin(), device.ports.end(),
              [](const RdmaPort& a, const RdmaPort& b) { return a.number < b.number; });
  }
  return devices;
}

std::map<std::string, std::uint64_t> rdma_counters(const std::string& device, int port, const fs::path& root) {
  std::map<std::string, std::uint64_t> counters;
  const fs::path folder = root / "sys/class/infiniband" / device / "ports" / std::to_string(port);
  for (const char* group : {"counters", "hw_counters"}) {
    for (const std::string& name : names_in(folder / group)) {
      const std::string line = line_of(folder / group / name);  // "N/A (no PMA)" where there is none
      // "lifespan" is no counter but the milliseconds for which the driver keeps them.
      if (name == "lifespan" || line.empty() || line.front() < '0' || line.front() > '9') continue;
      if (const std::optional<std::uint64_t> value = number_in(line)) counters[name] = *value;
    }
  }
  return counters;
}

}  // namespace aiacc::io

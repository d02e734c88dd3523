#include "runtime/bootstrap/networks.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/io/limits.h"
#include "base/io/rdma_devices.h"
#include "transports/active/active_port_factory.h"
#include "transports/ofi/ofi_library.h"
#include "transports/tcp/tcp_port_factory.h"
#include "transports/ucx/ucx_library.h"

namespace aiacc {

RdmaDevices usable_rdma_devices(const std::filesystem::path& root) {
  RdmaDevices devices;
  for (const io::RdmaDevice& each : io::rdma_devices(root)) {
    if (!each.usable || !each.has_active_port()) continue;
    if (each.efa()) {
      devices.efa = true;
    } else {
      devices.others.push_back(each.name);
    }
  }
  return devices;
}

bool uses_one_of(const std::vector<std::string>& devices, std::string_view description) {
  return std::any_of(devices.begin(), devices.end(), [&](const std::string& name) {
    return description.find(fmt::format("/{}:", name)) != std::string_view::npos;
  });
}

std::string obstacle_to_ucx(const std::vector<std::string>& devices, std::span<const std::string> settings,
                            std::optional<std::uint64_t> lockable) {
  constexpr std::uint64_t kLeast = std::uint64_t{128} << 20;  // twice the receive queues of rc and ud of two workers
  const bool tcp_only = std::find(settings.begin(), settings.end(), "UCX_TLS=tcp") != settings.end();
  if (devices.empty() || tcp_only || !lockable || *lockable >= kLeast) return {};
  return fmt::format(
      "a process may lock {} bytes of memory, and UCX needs {} of them for {}; 'ulimit -l unlimited', or "
      "AIACC_UCX_TLS=tcp",
      *lockable, kLeast, devices.front());
}

namespace {

std::string_view demanded_by(Network network) {
  switch (network) {
    case Network::kAuto: return {};
    case Network::kTcp: return wire::kTcp;
    case Network::kUcx: return ucx::kLibrary.transport;
    case Network::kOfi: return ofi::kLibrary.transport;
  }
  return {};
}

// Unless the user names a provider, libfabric is never used over TCP, where aiacc's own transport is the better one.
std::vector<std::string> with_hardware_only(std::vector<std::string> settings) {
  settings.push_back(fmt::format("{}={}", ofi::kLibrary.choice, ofi::kHardware));
  return settings;
}

}  // namespace

NetworkPorts networks_of(io::RealLoop& loop, io::RealNet& net, io::Entropy& entropy,
                         std::unique_ptr<io::Listener> listener, const NetworkSettings& settings) {
  NetworkPorts networks;
  const std::string_view demanded = demanded_by(settings.network);
  networks.require(demanded);
  networks.require_alike("AIACC_ALGORITHM", settings.algorithms);
  networks.take_from_rank_0("AIACC_ALGORITHM_TABLE", settings.algorithm_table);
  const auto over = [&](const active::Library& library, const std::vector<std::string>& its_settings) {
    return std::make_unique<ActivePortFactory>(loop, library, its_settings, settings.tcp.marks);
  };
  const auto add_if_there = [&](const active::Library& library, const std::vector<std::string>& its_settings,
                                const auto& is_wanted) {
    try {
      std::unique_ptr<ActivePortFactory> factory = over(library, its_settings);
      if (is_wanted(factory->description())) networks.add(std::move(factory));
    } catch (const Error&) {  // there is TCP; aiacc-info says what is missing
    }
  };
  const RdmaDevices devices = usable_rdma_devices();
  const std::string obstacle = obstacle_to_ucx(devices.others, settings.ucx, io::lockable_bytes());
  if (settings.network == Network::kUcx) {
    if (!obstacle.empty()) throw Error(Code::kUnsupported, "the transport ucx is not available: " + obstacle);
    networks.add(over(ucx::kLibrary, settings.ucx));
  }
  if (settings.network == Network::kOfi) networks.add(over(ofi::kLibrary, settings.ofi));
  if (settings.network == Network::kAuto && !settings.protection) {
    if (!devices.others.empty() && obstacle.empty()) {
      add_if_there(ucx::kLibrary, settings.ucx,
                   [&](const std::string& description) { return uses_one_of(devices.others, description); });
    }
    if (devices.efa) {
      add_if_there(ofi::kLibrary, with_hardware_only(settings.ofi), [](const std::string&) { return true; });
    }
  }
  networks.add(std::make_unique<TcpPortFactory>(loop, net, entropy, std::move(listener), settings.tcp.streams,
                                                settings.tcp.marks));
  networks.fall_back_to(wire::kTcp, loop, settings.failback);
  return networks;
}

}  // namespace aiacc

#include "runtime/bootstrap/networks.h"

#include <fmt/format.h>

#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "transports/active/active_port_factory.h"
#include "transports/ofi/ofi_library.h"
#include "transports/tcp/tcp_port_factory.h"
#include "transports/ucx/ucx_library.h"

namespace aiacc {

RdmaDevices rdma_devices(const std::filesystem::path& folder) {
  RdmaDevices devices;
  std::error_code none;
  for (const auto& each : std::filesystem::directory_iterator(folder, none)) {
    const bool efa = std::filesystem::read_symlink(each.path() / "device/driver", none).filename() == "efa";
    (efa ? devices.efa : devices.other) = true;
  }
  return devices;
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
  const auto add = [&](const active::Library& library, const std::vector<std::string>& its_settings) {
    networks.add(std::make_unique<ActivePortFactory>(loop, library, its_settings));
  };
  const auto add_if_there = [&](const active::Library& library, const std::vector<std::string>& its_settings) {
    try {
      add(library, its_settings);
    } catch (const Error&) {  // there is TCP; aiacc-info says what is missing
    }
  };
  if (settings.network == Network::kUcx) add(ucx::kLibrary, settings.ucx);
  if (settings.network == Network::kOfi) add(ofi::kLibrary, settings.ofi);
  if (settings.network == Network::kAuto && !settings.protection) {
    const RdmaDevices devices = rdma_devices();
    if (devices.other) add_if_there(ucx::kLibrary, settings.ucx);
    if (devices.efa) add_if_there(ofi::kLibrary, with_hardware_only(settings.ofi));
  }
  networks.add(std::make_unique<TcpPortFactory>(loop, net, entropy, std::move(listener), settings.tcp.streams,
                                                settings.tcp.marks));
  return networks;
}

}  // namespace aiacc

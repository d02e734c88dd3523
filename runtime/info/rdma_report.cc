#include "runtime/info/rdma_report.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace aiacc::info {
namespace {

// UCX's own choice where RoCE v2 is used: DSCP 26 with ECN (ECT(0)).
constexpr int kUsualTrafficClass = 106;

int asked_traffic_class(std::span<const std::string> ucx) {
  constexpr std::string_view kSetting = "UCX_IB_TRAFFIC_CLASS=";
  int asked = kUsualTrafficClass;
  for (const std::string& each : ucx) {
    if (!each.starts_with(kSetting)) continue;
    int value = 0;
    const auto [end, error] = std::from_chars(each.data() + kSetting.size(), each.data() + each.size(), value);
    if (error == std::errc() && end == each.data() + each.size()) asked = value;  // otherwise "auto"
  }
  return asked;
}

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(static_cast<std::int64_t>(*value)) : Json();
}

Json counters_of(const std::map<std::string, std::uint64_t>& counters) {
  Json::Object all;
  for (const auto& [name, value] : counters) all.emplace_back(name, Json(static_cast<std::int64_t>(value)));
  return all;
}

Json gids_of(const std::vector<io::RdmaGid>& gids) {
  Json::Array all;
  for (const io::RdmaGid& one : gids) {
    all.push_back(Json::Object{{"index", one.index}, {"gid", one.text}, {"type", one.type}, {"device", one.device}});
  }
  return all;
}

Json port_of(const RdmaReport& report, const RdmaReport::Port& one) {
  const io::RdmaPort& port = one.port;
  const int traffic_class = report.traffic_class_of(port), dscp = traffic_class / 4;
  const bool roce = port.ethernet();
  Json::Array lossless;
  for (int priority = 0; priority < 8; ++priority) {
    if (one.pause.on(priority)) lossless.emplace_back(priority);
  }
  return Json::Object{{"port", port.number},
                      {"state", port.state},
                      {"physical_state", port.physical},
                      {"link_layer", port.link_layer},
                      {"rate", port.rate},
                      {"network_device", port.net_device()},
                      {"gids", gids_of(port.gids)},
                      {"traffic_class", roce ? Json(traffic_class) : Json()},
                      {"dscp", roce ? Json(dscp) : Json()},
                      {"priority", roce && one.pause.enabled ? Json(one.pause.priority_of(dscp)) : Json()},
                      {"forced_traffic_class", or_null(port.forced_traffic_class)},
                      {"rdma_cm_tos", or_null(port.rdma_cm_tos)},
                      {"lossless_priorities", one.pause.enabled ? Json(std::move(lossless)) : Json()},
                      {"counters", counters_of(one.counters)},
                      {"pause_counters", counters_of(one.pause.counters)}};
}

}  // namespace

RdmaReport RdmaReport::read(std::span<const std::string> ucx, const std::filesystem::path& root) {
  RdmaReport report;
  report.traffic_class = asked_traffic_class(ucx);
  for (io::RdmaDevice& device : io::rdma_devices(root)) {
    Device& one = report.devices.emplace_back();
    for (const io::RdmaPort& port : device.ports) {
      Port& its = one.ports.emplace_back(Port{port, io::rdma_counters(device.name, port.number, root), {}});
      if (const std::string name = port.net_device(); port.ethernet() && !name.empty()) {
        its.pause = io::priority_pause(name);
      }
    }
    one.device = std::move(device);
  }
  return report;
}

bool RdmaReport::usable() const noexcept {
  return std::any_of(devices.begin(), devices.end(),
                     [](const Device& one) { return one.device.usable && one.device.has_active_port(); });
}

Json to_json(const RdmaReport& report) {
  Json::Array all;
  for (const RdmaReport::Device& one : report.devices) {
    Json::Array ports;
    for (const RdmaReport::Port& port : one.ports) ports.push_back(port_of(report, port));
    all.push_back(Json::Object{{"name", one.device.name},
                               {"driver", one.device.driver},
                               {"firmware", one.device.firmware},
                               {"numa", or_null(one.device.numa)},
                               {"node", one.device.node},
                               {"usable", one.device.usable},
                               {"ports", std::move(ports)}});
  }
  return all;
}

}  // namespace aiacc::info

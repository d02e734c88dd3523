// What of the RDMA devices will make a job fail, run slowly or not use them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "runtime/info/rdma_report.h"

namespace aiacc::info {
namespace {

struct CounterRow {
  const char* name;   // as the drivers of mlx5, bnxt_re and rxe call it
  const char* means;  // "port 1 of mlx5_0 has counted 7 ..."
  const char* cure;
};

constexpr const char* kLossless =
    "RDMA suffers from each loss: check PFC and ECN of adapters and switches, and cables (ethtool -S)";
constexpr const char* kSlowReceiver =
    "if it grows while jobs run, ranks of this host are late: look for other load on it";
constexpr std::array kCounters = {
    CounterRow{"out_of_sequence", "packets that came out of order: the network has lost or reordered some", kLossless},
    CounterRow{"rx_out_of_sequence", "packets that came out of order: the network has lost or reordered some",
               kLossless},
    CounterRow{"out_of_seq_request", "packets that came out of order: the network has lost or reordered some",
               kLossless},
    CounterRow{"packet_seq_err", "packets that a peer missed: the network has lost or reordered some", kLossless},
    CounterRow{"seq_err_naks_rcvd", "packets that a peer missed: the network has lost or reordered some", kLossless},
    CounterRow{"rcvd_seq_err", "packets that a peer missed: the network has lost or reordered some", kLossless},
    CounterRow{"local_ack_timeout_err", "acknowledgements that did not come in time", kLossless},
    CounterRow{"to_retransmits", "acknowledgements that did not come in time", kLossless},
    CounterRow{"req_transport_retries_exceeded", "connections given up after the last retry", kLossless},
    CounterRow{"retry_exceeded_err", "connections given up after the last retry", kLossless},
    CounterRow{"rx_icrc_encapsulated", "packets with a wrong checksum", "look for a bad cable or transceiver"},
    CounterRow{"rnr_nak_retry_err", "sends given up because the receiver had no buffer", kSlowReceiver},
    CounterRow{"out_of_buffer", "packets for which the receiver had no buffer", kSlowReceiver},
    CounterRow{"rp_cnp_ignored", "notices of congestion that it did not heed",
               "switch congestion control (DCQCN) on for the priority of RoCE"}};

class Judge {
 public:
  explicit Judge(const RdmaReport& report) : report_(report) {}

  Findings all() {
    for (const RdmaReport::Device& one : report_.devices) judge_device(one);
    return std::move(found_);
  }

 private:
  using Level = Finding::Level;

  void say(Level level, std::string sentence, std::string cure) {
    found_.push_back({level, "rdma", std::move(sentence), std::move(cure)});
  }

  void judge_device(const RdmaReport::Device& one) {
    const io::RdmaDevice& device = one.device;
    if (device.node.empty()) {
      say(Level::kHurts, fmt::format("{} has no device node here, so ranks do not use it", device.name),
          "load ib_uverbs, or give the container the devices (docker --device /dev/infiniband)");
    } else if (!device.usable) {
      say(Level::kHurts,
          fmt::format("this user may not open {} of {}, so ranks do not use it", device.node, device.name),
          "permit it to the user (chmod 666, a rule of udev), or give the container the devices");
    }
    for (const RdmaReport::Port& port : one.ports) judge_port(device, port);
  }

  void judge_port(const io::RdmaDevice& device, const RdmaReport::Port& one) {
    const io::RdmaPort& port = one.port;
    const std::string name = fmt::format("port {} of {}", port.number, device.name);
    if (!port.active()) {
      say(device.has_active_port() ? Level::kNote : Level::kHurts,
          fmt::format("{} is {} ({}), so ranks do not use it", name, port.state, port.physical), cure_of(port));
      return;
    }
    if (port.ethernet() && !device.efa()) judge_roce(name, one);
    for (const CounterRow& row : kCounters) {
      const auto counted = one.counters.find(row.name);
      if (counted == one.counters.end() || counted->second == 0) continue;
      say(Level::kNote, fmt::format("{} has counted {} {} ({})", name, counted->second, row.means, row.name), row.cure);
    }
  }

  static std::string cure_of(const io::RdmaPort& port) {
    if (port.ethernet()) {
      const std::string device = port.net_device();
      return fmt::format("bring its network device up (ip link set {} up), and check the cable",
                         device.empty() ? "DEVICE" : device);
    }
    return port.state == "INIT" ? "start a subnet manager (opensm) in its network" : "check the cable and the switch";
  }

  void judge_roce(const std::string& name, const RdmaReport::Port& one) {
    const io::RdmaPort& port = one.port;
    const auto is_second = [](const io::RdmaGid& gid) { return gid.type == "RoCE v2"; };
    const auto is_routed = [&](const io::RdmaGid& gid) { return is_second(gid) && !gid.text.starts_with("fe80"); };
    if (port.gids.empty()) {
      say(Level::kHurts, fmt::format("{} has no GID, so nobody can reach it", name),
          "give its network device an IP address and bring it up");
      return;
    }
    const std::string device = port.net_device();
    if (std::none_of(port.gids.begin(), port.gids.end(), is_second)) {
      say(Level::kHurts,
          fmt::format("{} has GIDs of RoCE v1 only, whose packets are not routed and carry no DSCP", name),
          "switch RoCE v2 on in the adapter's firmware, or ask for it: cma_roce_mode, and an IP address");
    } else if (std::none_of(port.gids.begin(), port.gids.end(), is_routed)) {
      say(Level::kNote,
          fmt::format(
              "{} has no GID of RoCE v2 but link-local ones: libfabric cannot use it, and hosts behind a router "
              "cannot reach it",
              name),
          fmt::format("give {} an IP address", device));
    }
    if (port.forced_traffic_class) {
      say(Level::kNote,
          fmt::format("{} gives each packet traffic class {}, whatever AIACC_UCX_IB_TRAFFIC_CLASS says", name,
                      *port.forced_traffic_class),
          "leave it if that is meant; else write another one to tc/PORT/traffic_class of the device");
    }
    judge_pause(name, one);
  }

  void judge_pause(const std::string& name, const RdmaReport::Port& one) {
    const int dscp = report_.traffic_class_of(one.port) / 4;
    const int priority = one.pause.priority_of(dscp);
    if (one.pause.enabled && !one.pause.on(priority)) {
      say(Level::kNote,
          fmt::format(
              "{} has no PFC on priority {}, which its packets have (DSCP {}): a full switch loses some of them", name,
              priority, dscp),
          fmt::format("if the network is meant to be lossless: dcb pfc set dev {} prio-pfc {}:on, and trust DSCPs, as "
                      "its switches must",
                      one.port.net_device(), priority));
    }
    const auto paused = one.pause.counters.find(fmt::format("rx_prio{}_pause_duration", priority));
    if (paused != one.pause.counters.end() && paused->second > 0) {
      say(Level::kNote,
          fmt::format("the network has told {} to pause priority {} for {} us since it is up", name, priority,
                      paused->second),
          "if it grows while jobs run, a receiver or a link is slower than its senders: look at the switches' "
          "counters");
    }
  }

  const RdmaReport& report_;
  Findings found_;
};

}  // namespace

Findings judge(const RdmaReport& report) { return Judge(report).all(); }

}  // namespace aiacc::info

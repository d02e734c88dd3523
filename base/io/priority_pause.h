// Priority flow control (PFC, 802.1Qbb) of a network device: on which priorities it makes no packet get lost, which priority a DSCP has,
// and how long the network has told it to pause. What RoCE wants to know of its Ethernet; drivers of adapters without it say nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace aiacc::io {

struct PriorityPause {
  std::optional<unsigned> enabled;  // bit p: PFC is on for priority p; nullopt: the driver does not say
  std::map<int, int>
      priority_of_dscp;  // those that were set; others have the driver's, which is DSCP / 8 where it trusts DSCPs
  std::map<std::string, std::uint64_t>
      counters;  // of ethtool, that count pauses: "rx_prio3_pause_duration" in microseconds

  bool on(int priority) const noexcept { return enabled && (*enabled >> priority & 1) != 0; }
  int priority_of(int dscp) const {
    const auto set = priority_of_dscp.find(dscp);
    return set == priority_of_dscp.end() ? dscp / 8 : set->second;
  }
};

// By rtnetlink (DCB) and by ethtool's ioctl; needs no privilege.
PriorityPause priority_pause(const std::string& device);

// What the kernel's answer to a request for IEEE DCB settings says, without counters. An answer that is cut off ends there.
PriorityPause read_dcb_answer(std::span<const std::byte> answer);

}  // namespace aiacc::io

// TrafficMarks: what is set for a class of traffic. The marks by which the network tells classes apart: the DSCP of the packets, and
// the priority by which this host's queueing disciplines and VLAN devices order them (SO_PRIORITY). The rate that a connection may not
// exceed (SO_MAX_PACING_RATE). The share that the class has beside others, how long what it sends may make others wait in the
// network's queues, and whether the network is said to lose nothing of it: these are the sender's matter and no socket's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace aiacc::io {

struct TrafficMarks {
  static constexpr int kMostPriority = 15;
  static constexpr int kMostOrdinaryPriority = 6;  // above, CAP_NET_ADMIN is needed
  static constexpr int kMostShare = 1000;
  static constexpr Duration kLeastDelay = std::chrono::microseconds(10);
  static constexpr Duration kMostDelay = std::chrono::seconds(1);
  static constexpr std::uint64_t kLeastRate = 8'000;
  static constexpr std::uint64_t kMostRate = 10'000'000'000'000;

  std::optional<int> dscp = {};            // 0 to 63
  std::optional<int> priority = {};        // 0 to kMostPriority
  std::optional<int> share = {};           // 1 to kMostShare
  std::optional<std::uint64_t> rate = {};  // bits a second
  std::optional<Duration> delay = {};      // in the network's queues; zero: any
  std::optional<bool> lossless = {};       // priority flow control (PFC) is on where its packets go

  // "dscp=10,priority=2,share=9,rate=500mbit,delay=2ms,lossless=yes", any of them, or delay=none; "" has none. Throws kInvalidArgument with a
  // sentence that begins with `name`, the setting.
  static TrafficMarks parse(std::string_view name, const std::string& text);
  std::string text() const;
  // Nothing that a socket has.
  bool none() const noexcept { return !dscp && !priority && !rate; }
  bool is_lossless() const noexcept { return lossless.value_or(false); }
  bool limits_delay() const noexcept { return delay.value_or(Duration{}) > Duration{}; }
  // Messages of both may have the same connections.
  bool same_flow(const TrafficMarks& other) const noexcept {
    return dscp == other.dscp && priority == other.priority && rate == other.rate &&
           delay.value_or(Duration{}) == other.delay.value_or(Duration{}) && is_lossless() == other.is_lossless();
  }
  bool operator==(const TrafficMarks&) const = default;
};

// Marks and paces what this end sends over a TCP socket from now on; other descriptors, and -1, are left alone. "" or why not.
std::string mark_traffic(int descriptor, const TrafficMarks& marks);

}  // namespace aiacc::io

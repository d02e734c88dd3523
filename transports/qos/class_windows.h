// ClassWindows: the limits of delay (AIACC_TC_*, delay=) of what one rank sends to another through a library. Each has a DelayWindow, as a
// connection of transports/tcp has, whose bytes are messages that the peer acknowledges. Classes with the same limit share a window. Bulk and
// background without a limit of their own have one while latency is in use, if the caller says so.
//
// A state of bytes and times alone, without a clock.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "transports/message.h"
#include "transports/qos/class_turns.h"
#include "transports/qos/delay_window.h"
#include "transports/qos/message_flow.h"

namespace aiacc {

class ClassWindows {
 public:
  using Delays = std::array<std::optional<Duration>, kTrafficClasses>;  // zero: no limit, not even beside latency
  // Longer messages of a class with a limit go in parts, so that the others wait for no more than that, unless the window is so wide that it
  // does not matter.
  static constexpr std::uint64_t kWholeBytes = 64 << 10;
  static constexpr std::uint64_t kPartBytes = 16 << 10;
  static constexpr std::uint64_t kMostPartBytes = 32 << 10;
  static constexpr std::uint64_t kWideWindow = 1 << 20;

  ClassWindows(const Delays& delays, bool beside_latency) noexcept;

  // At some time; false: nothing else needs to be asked.
  bool may_limit(TrafficClass traffic) const noexcept { return window_of_[static_cast<std::size_t>(traffic)] != kNone; }
  // Messages of the class wait for a window at present, and the peer acknowledges them.
  bool limits(TrafficClass traffic, bool latency_in_use) const noexcept {
    const std::size_t its = window_of_[static_cast<std::size_t>(traffic)];
    return its != kNone && (latency_in_use || !windows_[its].beside_latency);
  }
  // Of the classes `waiting`, a bit for each, whose oldest messages have `bytes`: those that may begin none now.
  unsigned held_back(unsigned waiting, const ClassTurns::Bytes& bytes, bool latency_in_use, Instant now) noexcept;
  // A message of a class that has a limit has begun.
  void began(TrafficClass traffic, std::uint64_t number, std::uint64_t bytes, Instant now);
  void acknowledged(TrafficClass traffic, std::uint64_t number, Instant now) noexcept;
  // No other class has anything to send for the time being.
  void only(unsigned waiting) noexcept;
  bool divides(TrafficClass traffic, bool latency_in_use) const noexcept {
    return limits(traffic, latency_in_use) && window(traffic) < kWideWindow;
  }
  std::uint64_t part_bytes(TrafficClass traffic) const noexcept {
    return std::clamp(window(traffic) / 8, kPartBytes, kMostPartBytes);
  }
  // What the class may have under way; 0: it has no window.
  std::uint64_t window(TrafficClass traffic) const noexcept;

 private:
  static constexpr std::size_t kNone = kTrafficClasses;

  struct Window {
    Duration limit{};
    bool beside_latency = false;  // and only then
    unsigned classes = 0;         // a bit for each
    MessageFlow flow;
    std::optional<DelayWindow> bytes;
  };

  std::array<std::size_t, kTrafficClasses> window_of_{};
  std::array<Window, kTrafficClasses> windows_;  // of the first class that has it
};

}  // namespace aiacc

#include "transports/qos/class_windows.h"

#include <algorithm>

#include "transports/qos/latency_use.h"

namespace aiacc {

ClassWindows::ClassWindows(const Delays& delays, bool beside_latency) noexcept {
  for (std::size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
    const bool yields = !delays[traffic] && beside_latency && static_cast<TrafficClass>(traffic) >= TrafficClass::kBulk;
    const Duration limit = yields ? LatencyUse::kDelay : delays[traffic].value_or(Duration{});
    window_of_[traffic] = kNone;
    if (limit <= Duration{}) continue;
    const auto same = std::find_if(windows_.begin(), windows_.end(), [&](const Window& each) {
      return each.classes != 0 && each.limit == limit && each.beside_latency == yields;
    });
    const std::size_t its = same == windows_.end() ? traffic : static_cast<std::size_t>(same - windows_.begin());
    window_of_[traffic] = its;
    windows_[its].limit = limit;
    windows_[its].beside_latency = yields;
    windows_[its].classes |= 1U << traffic;
  }
}

// If one class of a window has to wait, so do the others: short messages could keep the window full for ever.
unsigned ClassWindows::held_back(unsigned waiting, const ClassTurns::Bytes& bytes, bool latency_in_use,
                                 Instant now) noexcept {
  unsigned held = 0;
  for (Window& its : windows_) {
    if ((its.classes & waiting) == 0) continue;
    if (its.beside_latency && !latency_in_use) {
      its.bytes.reset();
      continue;
    }
    if (!its.bytes) its.bytes.emplace(its.limit);
    for (std::size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
      if ((its.classes & waiting & 1U << traffic) == 0) continue;
      const bool has_room = its.bytes->admits(bytes[traffic], its.flow.state(), now);
      if (!has_room || its.flow.waits_for_path(bytes[traffic], now)) held |= its.classes;
    }
  }
  return held;
}

void ClassWindows::began(TrafficClass traffic, std::uint64_t number, std::uint64_t bytes, Instant now) {
  windows_[window_of_[static_cast<std::size_t>(traffic)]].flow.sent(traffic, number, bytes, now);
}

void ClassWindows::acknowledged(TrafficClass traffic, std::uint64_t number, Instant now) noexcept {
  const std::size_t its = window_of_[static_cast<std::size_t>(traffic)];
  if (its != kNone) windows_[its].flow.acknowledged(traffic, number, now);
}

void ClassWindows::only(unsigned waiting) noexcept {
  for (Window& its : windows_) {
    if (its.bytes && (its.classes & waiting) == 0) its.bytes->idle();
  }
}

std::uint64_t ClassWindows::window(TrafficClass traffic) const noexcept {
  const std::size_t its = window_of_[static_cast<std::size_t>(traffic)];
  return its == kNone || !windows_[its].bytes ? 0 : windows_[its].bytes->bytes();
}

}  // namespace aiacc

// Instants and durations. An Instant comes from one Clock (base/io/clock.h): real monotonic time or the simulator's.
// Only base/ converts between instants, durations and the system's types; all other code computes with these types.
#pragma once

#include <chrono>
#include <cstdint>

namespace aiacc {

using Duration = std::chrono::nanoseconds;

struct MonotonicTimeline {};
using Instant = std::chrono::time_point<MonotonicTimeline, Duration>;

inline constexpr Instant kNever = Instant::max();

// `from + span`, saturated at kNever, so that a distant deadline does not overflow.
constexpr Instant after(Instant from, Duration span) { return span >= kNever - from ? kNever : from + span; }

constexpr double seconds(Duration span) { return std::chrono::duration<double>(span).count(); }

}  // namespace aiacc

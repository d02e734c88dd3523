// Points and spans of time. An Instant comes from one Clock (base/io/clock.h): real monotonic time or the simulator's.
// Only base/ turns the two kinds into each other or into the system's; everything else computes with these types.
#pragma once

#include <chrono>
#include <cstdint>

namespace aiacc {

using Duration = std::chrono::nanoseconds;

struct MonotonicTimeline {};
using Instant = std::chrono::time_point<MonotonicTimeline, Duration>;

inline constexpr Instant kNever = Instant::max();

// `from + span`, saturated at kNever: a deadline far away must not wrap into the past.
constexpr Instant after(Instant from, Duration span) { return span >= kNever - from ? kNever : from + span; }

constexpr double seconds(Duration span) { return std::chrono::duration<double>(span).count(); }

}  // namespace aiacc

// Options of one operation. Part of aiacc.hpp.
#ifndef AIACC_OPTIONS_HPP
#define AIACC_OPTIONS_HPP

#include <aiacc/aiacc.h>

#include <chrono>
#include <cstdint>

namespace aiacc {
inline namespace v0 {

// See aiacc_attr_t.
struct Options {
  const char *name = nullptr;
  std::chrono::milliseconds timeout{0};  // 0: the default; -1 ms: none
  double prescale = 1;
  double postscale = 1;
  std::int32_t priority = 0;
  std::int32_t traffic_class = AIACC_TRAFFIC_DEFAULT;
};

namespace detail {

inline aiacc_attr_t attr_of(const Options &options) {
  aiacc_attr_t attr{};
  attr.size = sizeof attr;
  attr.name = options.name;
  attr.timeout_ms = options.timeout.count();
  attr.prescale = options.prescale;
  attr.postscale = options.postscale;
  attr.priority = options.priority;
  attr.traffic_class = options.traffic_class;
  return attr;
}

}  // namespace detail

}  // namespace v0
}  // namespace aiacc

#endif

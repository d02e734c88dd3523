#include "launcher/attendance.h"

#include <fmt/format.h>

#include <cstddef>

namespace aiacc::launcher {

namespace {

constexpr std::size_t kNamedHosts = 8;

// "0-2, 5"
std::string ranges(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[first]);
    if (last > first) text += fmt::format("-{}", ranks[last]);
    first = last + 1;
  }
  return text;
}

std::string by_host(const std::vector<HostAttendance>& hosts, std::vector<int> HostAttendance::*ranks) {
  std::string text;
  std::size_t named = 0;
  std::size_t unnamed = 0;
  for (const HostAttendance& host : hosts) {
    const std::vector<int>& here = host.*ranks;
    if (here.empty()) continue;
    if (named == kNamedHosts) {
      unnamed += here.size();
      continue;
    }
    text += fmt::format("{}{} on host {}", named++ == 0 ? "" : ", ", ranges(here), host.host);
  }
  return unnamed == 0 ? text : fmt::format("{} and {} on other hosts", text, unnamed);
}

}  // namespace

std::string attendance_text(const std::vector<HostAttendance>& hosts) {
  std::size_t came = 0;
  std::size_t missing = 0;
  for (const HostAttendance& host : hosts) {
    came += host.came.size();
    missing += host.missing.size();
  }
  if (missing == 0) return "";
  return fmt::format("{} of {} ranks called aiacc_init: {}; {} did not", came, came + missing,
                     came == 0 ? "none" : by_host(hosts, &HostAttendance::came),
                     by_host(hosts, &HostAttendance::missing));
}

}  // namespace aiacc::launcher

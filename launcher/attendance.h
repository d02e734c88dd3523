// Who has said hello in a job and who has not, in words for those that wait. Pure.
#pragma once

#include <string>
#include <vector>

namespace aiacc::launcher {

struct HostAttendance {
  std::string host;
  std::vector<int> came;     // ranks, ascending
  std::vector<int> missing;  // ranks, ascending
};

// "3 of 5 ranks called aiacc_init: 0-1 on host a, 2 on host b; 3-4 on host b did not". Empty when nobody is missing.
std::string attendance_text(const std::vector<HostAttendance>& hosts);

}  // namespace aiacc::launcher

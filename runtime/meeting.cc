#include "runtime/meeting.h"

#include <fmt/format.h>

namespace aiacc {

std::string too_late(Duration limit, const std::string& attendance) {
  return fmt::format("the job did not come together within {:.6g} s (AIACC_INIT_TIMEOUT): {}", seconds(limit),
                     attendance);
}

}  // namespace aiacc

#include "runtime/rendezvous/rendezvous.h"

#include <fmt/format.h>

namespace aiacc {

std::string too_late(Duration limit, const std::string& arrivals) {
  return fmt::format("the job did not come together within {:.6g} s (AIACC_INIT_TIMEOUT): {}", seconds(limit),
                     arrivals);
}

void check_firsts(const std::vector<std::int32_t>& firsts, int size) {
  if (firsts.size() != static_cast<std::size_t>(size)) {
    throw Error(Code::kProtocol, fmt::format("rank 0 tells where {} ranks are, in a job of {}", firsts.size(), size));
  }
  for (std::int32_t rank = 0; rank < size; ++rank) {
    const std::int32_t first = firsts[static_cast<std::size_t>(rank)];
    if (first >= 0 && first <= rank && firsts[static_cast<std::size_t>(first)] == first) continue;
    throw Error(Code::kProtocol,
                fmt::format("rank {} says that rank {} is the first of its host, and that is not what rank {} says",
                            rank, first, first));
  }
}

}  // namespace aiacc

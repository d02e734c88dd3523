// Which ranks of a job have come and which have not, as a sentence for those that wait: the same from aiaccrun and from the
// rendezvous. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace aiacc::wire {

struct RankArrival {
  enum class State : std::uint8_t { kAway, kHere, kLeft };
  State state = State::kAway;
  std::string where = {};  // "on host a"; empty if it is not known
};

// "3 of 6 ranks called aiacc_init: ranks 0-1 on host a, rank 2 on host b; rank 3 on host b came and left; ranks 4-5 did
// not". `ranks` is indexed by rank; `did` is what those did that have come.
std::string arrivals_text(std::span<const RankArrival> ranks, std::string_view did);

}  // namespace aiacc::wire

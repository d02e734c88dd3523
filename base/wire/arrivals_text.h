// Sentences about ranks that arrive, which aiaccrun, its agents and the rendezvous word alike: which ranks have come and which
// have not, and that two of them have different versions. Pure.
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

// "rank 0 uses aiacc 1.0 and rank 2 aiacc 1.1: all ranks of a job need the same version". `first_uses` has the verb.
std::string version_mismatch_text(std::string_view first_uses, std::string_view version, std::string_view other,
                                  std::string_view other_version);

}  // namespace aiacc::wire

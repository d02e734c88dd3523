// All algorithms between hosts, and the choice among them where one was measured to be the fastest.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/inter/algorithm_info.h"

namespace aiacc::inter {

// The collectives that a user can choose algorithms for, as aiacc-env(7) names them.
struct NamedCollective {
  Collective kind;
  std::string_view name;
};
std::span<const NamedCollective> named_collectives() noexcept;
std::string_view name_of(Collective kind) noexcept;

// Those of a collective, the more general ones last; at most 32.
std::span<const AlgorithmInfo* const> algorithms_of(Collective kind) noexcept;

// Of those that can serve the call and are among `permitted` (bit i: algorithms_of()[i]), the one whose cost is least on a usual
// network; the first of equals. Null: there is none.
const AlgorithmInfo* cheapest_algorithm(const Shape& shape, std::uint32_t permitted = ~std::uint32_t{0}) noexcept;

// Whether usual_algorithm() follows measurements for this collective, and not costs.
bool is_measured(Collective kind) noexcept;
// Whether it does when it takes this one: the double tree is taken for its cost.
bool is_measured(const AlgorithmInfo& algorithm) noexcept;
// The one that is taken unless the user excludes it. It can serve the call.
const AlgorithmInfo& usual_algorithm(const Shape& shape) noexcept;

}  // namespace aiacc::inter

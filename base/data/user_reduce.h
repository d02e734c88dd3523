// Reductions by a user-defined operator, with Compute's guarantee: operands are combined in the given order.
#pragma once

#include <cstddef>
#include <span>

#include "base/data/reduction.h"

namespace aiacc {

// Each destination[i] = operands[0][i] op operands[1][i] op …, for `count` records. A destination may be one of the operands.
void reduce_by_user(std::span<std::byte* const> destinations, std::span<const std::byte* const> operands,
                    std::size_t count, const UserOp& op);

}  // namespace aiacc

// Gather and scatter: the root exchanges one message with each other rank, several at once. For long blocks, of which a
// tree (binomial_gather.h) would carry most log n times, and uneven ones, whose length only their two ends know.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

Task<void> gather(Operation& op);
Task<void> scatter(Operation& op);
extern const AlgorithmInfo kLinearGatherInfo;
extern const AlgorithmInfo kLinearScatterInfo;

}  // namespace aiacc::inter

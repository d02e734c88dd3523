// Gather and scatter by a binomial tree (Thakur, Rabenseifner, Gropp 2005): each rank collects the blocks of its subtree and
// sends them to its parent in one message, or the other way round.
//
//   ⌈log₂ n⌉α + (n−1)Bβ for blocks of B bytes at the root, whose messages are ⌈log₂ n⌉ where gather.h has n−1
//
// For short blocks: most bytes travel more than once, and are copied at each stop.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

// Both require blocks of one length, and all ranks of the group.
Task<void> binomial_gather(Operation& op);
Task<void> binomial_scatter(Operation& op);
extern const AlgorithmInfo kBinomialGatherInfo;
extern const AlgorithmInfo kBinomialScatterInfo;

}  // namespace aiacc::inter

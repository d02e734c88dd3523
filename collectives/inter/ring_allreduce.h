// Ring allreduce: a ring reduce-scatter, then a ring all-gather (Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms
// for clusters of workstations", JPDC 2009).
//
//   2(n−1)α + 2(n−1)/n·Sβ + (n−1)/n·Sγ
//
// Bandwidth optimal for any n; for large messages. Each slice is summed along the ring in one order, completed at one
// owner and then copied, so all ranks have the same bits. Partial sums travel in the element type.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

Task<void> ring_allreduce(Operation& op);
extern const AlgorithmInfo kRingAllreduceInfo;

}  // namespace aiacc::inter

// Ring reduce-scatter: the first half of ring_allreduce.h, rotated so that rank r ends with block r.
//
//   (n−1)(α + S/n·(β + γ)), S the bytes of all blocks
//
// Each block is summed along the ring in one order. Partial sums travel in the element type.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

// op.send holds n blocks of call.count elements, op.recv this rank's; op.recv may be its place in op.send.
Task<void> ring_reduce_scatter(Operation& op);
extern const AlgorithmInfo kRingReduceScatterInfo;

}  // namespace aiacc::inter

// Ring all-gather (Thakur, Rabenseifner, Gropp 2005): in step k each rank passes on the block that it received in step k−1.
//
//   (n−1)(α + S/n·β), S the bytes of all blocks
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

// op.send is this rank's block of call.count elements, op.recv all n of them; op.send may be its place in op.recv.
Task<void> ring_allgather(Operation& op);
extern const AlgorithmInfo kRingAllgatherInfo;

}  // namespace aiacc::inter

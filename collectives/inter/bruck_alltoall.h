// Bruck's all-to-all (Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in multiport
// message-passing systems", IEEE TPDS 1997): in round k each rank sends the blocks that have to travel a distance with bit k
// to the rank at distance 2^k, in one message.
//
//   ⌈log₂ n⌉(α + n/2·Bβ) for blocks of B bytes, and about (2 + ⌈log₂ n⌉)·nB of copying
//
// For short blocks, of which pairwise exchanges would send n−1 messages.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

// Requires blocks of one length, and all ranks of the group. op.send may equal op.recv.
Task<void> bruck_alltoall(Operation& op);
extern const AlgorithmInfo kBruckAlltoallInfo;

}  // namespace aiacc::inter

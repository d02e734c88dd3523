// Dissemination barrier (Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", IJPP 1988): in round k
// each rank sends to rank+2^k and receives from rank−2^k.
//
//   ⌈log₂ n⌉α
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

Task<void> dissemination_barrier(Operation& op);
extern const AlgorithmInfo kDisseminationBarrierInfo;

}  // namespace aiacc::inter

// Dissemination barrier (Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", IJPP 1988): in round k each
// rank tells rank+2^k and hears from rank−2^k.
//
//   ⌈log₂ n⌉α
#pragma once

#include "collectives/operation.h"

namespace aiacc::net {

Task<void> dissemination_barrier(Operation& op);

}  // namespace aiacc::net

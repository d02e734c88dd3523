// Binomial broadcast (Thakur, Rabenseifner, Gropp 2005): the root is the top of a binomial tree, and each rank passes
// what it received on to its children, the largest subtree first. Long messages go in chunks, several of them in
// flight.
//
//   ⌈log₂ n⌉(α + Sβ), with c chunks about (⌈log₂ n⌉ + c − 1)·⌈log₂ n⌉·(α + S/c·β) at the root
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

// The buffer is op.recv on every rank; if the root's op.send is a different buffer, it is copied to op.recv.
Task<void> binomial_broadcast(Operation& op);
extern const AlgorithmInfo kBinomialBroadcastInfo;

}  // namespace aiacc::inter

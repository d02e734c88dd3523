// Chain broadcast, pipelined (Pjesivac-Grbovic et al., "Performance analysis of MPI collective operations", Cluster Computing
// 2007: pipeline): the ranks form a chain that begins at the root, and each passes every segment on to the next rank while
// the one after it arrives.
//
//   root ─▶ root+1 ─▶ … ─▶ root−1        with segments of m bytes: (n−1)α + (S + (n−2)m)β + 2(S/m)o
//
// where o is the processor's time to send or to receive a message. A link carries the payload once, where in a tree the root's
// link carries it ⌈log₂ n⌉ times; for long messages. The time is least for m = √(2oS / ((n−2)β)).
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

// No segment is shorter, unless the payload is.
inline constexpr std::size_t kShortestChainSegment = 16 << 10;

// The buffer is op.recv on every rank; if the root's op.send is a different buffer, it is copied to op.recv.
Task<void> chain_broadcast(Operation& op);
extern const AlgorithmInfo kChainBroadcastInfo;

}  // namespace aiacc::inter

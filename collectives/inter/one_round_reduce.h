// Reductions of small payloads in one round: every rank that needs the result receives all inputs at once and reduces
// them in one pass, in rank order. One latency and (n−1)·S bytes a rank, where the shards of ordered_reduce.h take
// 2(n−1) latencies.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

// Whether inputs of `bytes` from each of `ranks` ranks are small enough.
bool fits_one_round(int ranks, std::size_t bytes) noexcept;

Task<void> one_round_allreduce(Operation& op);
Task<void> one_round_reduce(Operation& op);
extern const AlgorithmInfo kOneRoundAllreduceInfo;
extern const AlgorithmInfo kOneRoundReduceInfo;

}  // namespace aiacc::inter

#include "collectives/net/select.h"

#include "collectives/net/alltoall.h"
#include "collectives/net/binomial_broadcast.h"
#include "collectives/net/binomial_reduce.h"
#include "collectives/net/dissemination_barrier.h"
#include "collectives/net/gather.h"
#include "collectives/net/halving_doubling_allreduce.h"
#include "collectives/net/net_call.h"
#include "collectives/net/one_round_reduce.h"
#include "collectives/net/ordered_reduce.h"
#include "collectives/net/partial_reduce.h"
#include "collectives/net/point_to_point.h"
#include "collectives/net/recursive_doubling_allreduce.h"
#include "collectives/net/ring_allgather.h"
#include "collectives/net/ring_allreduce.h"
#include "collectives/net/ring_reduce_scatter.h"

namespace aiacc::net {
namespace {

// With more ranks, their messages in one round (1.5 µs of a core each to send and as much to receive) take longer than
// ⌈log₂ n⌉ rounds of 5 µs of latency and two messages.
constexpr int kRanksInOneRound = 8;

// Of inputs in 16 bits: few enough bytes to travel in 32, and too many ranks for one round.
bool widens(const Operation& op) noexcept {
  return op.call.reduction.narrows() && ranks_in(op) > kRanksInOneRound &&
         op.call.count * size_of(op.call.reduction.accumulate_type()) <= kRecursiveDoublingBytes;
}

Task<void> allreduce(Operation& op) {
  const Reduction& reduction = op.call.reduction;
  if (reduction.partial == Partial::kOperands) return partial_allreduce(op);
  if (widens(op)) return widened_reduce(op);
  // Trees and rings round partial sums, and both but recursive doubling turn the order of ranks.
  const bool in_one_pass = reduction.narrows() || reduction.ordered();
  if (in_one_pass && fits_one_round(ranks_in(op), op.call.bytes())) return one_round_allreduce(op);
  if (reduction.narrows()) return ordered_allreduce(op);
  if (op.call.bytes() <= kRecursiveDoublingBytes) return recursive_doubling_allreduce(op);
  if (reduction.ordered()) return ordered_allreduce(op);
  const bool halves = halving_serves(ranks_in(op)) && op.call.bytes() <= kHalvingDoublingBytes;
  return halves ? halving_doubling_allreduce(op) : ring_allreduce(op);
}

Task<void> reduce(Operation& op) {
  const Reduction& reduction = op.call.reduction;
  if (reduction.partial == Partial::kOperands) return partial_reduce(op);
  if (!reduction.narrows() && !reduction.ordered()) return binomial_reduce(op);
  if (widens(op)) return widened_reduce(op);
  return fits_one_round(ranks_in(op), op.call.bytes()) ? one_round_reduce(op) : ordered_reduce(op);
}

Task<void> reduce_scatter(Operation& op) {
  const Reduction& reduction = op.call.reduction;
  if (reduction.partial == Partial::kOperands) return partial_reduce_scatter(op);
  return reduction.narrows() || reduction.ordered() ? ordered_reduce_scatter(op) : ring_reduce_scatter(op);
}

}  // namespace

Task<void> run(Operation& op) {
  switch (op.call.kind) {
    case Collective::kAllreduce: return allreduce(op);
    case Collective::kReduce: return reduce(op);
    case Collective::kBroadcast: return binomial_broadcast(op);
    case Collective::kAllgather: return ring_allgather(op);
    case Collective::kReduceScatter: return reduce_scatter(op);
    case Collective::kBarrier: return dissemination_barrier(op);
    case Collective::kSend: return send(op);
    case Collective::kRecv: return recv(op);
    case Collective::kAlltoall: return alltoall(op);
    case Collective::kGather: return gather(op);
    case Collective::kScatter: return scatter(op);
    default: break;
  }
  throw Error(Code::kInternal, "a collective that this build does not know");
}

}  // namespace aiacc::net

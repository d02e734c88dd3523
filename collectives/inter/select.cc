#include "collectives/inter/select.h"

#include "collectives/inter/alltoall.h"
#include "collectives/inter/binomial_broadcast.h"
#include "collectives/inter/binomial_reduce.h"
#include "collectives/inter/dissemination_barrier.h"
#include "collectives/inter/gather.h"
#include "collectives/inter/halving_doubling_allreduce.h"
#include "collectives/inter/inter_call.h"
#include "collectives/inter/one_round_reduce.h"
#include "collectives/inter/ordered_reduce.h"
#include "collectives/inter/partial_reduce.h"
#include "collectives/inter/point_to_point.h"
#include "collectives/inter/recursive_doubling_allreduce.h"
#include "collectives/inter/ring_allgather.h"
#include "collectives/inter/ring_allreduce.h"
#include "collectives/inter/ring_reduce_scatter.h"

namespace aiacc::inter {
namespace {

// With more ranks, n−1 messages in one round (1.5 µs of a core to send and as much to receive each) take longer than
// ⌈log₂ n⌉ rounds with 5 µs of latency and two messages.
constexpr int kRanksInOneRound = 8;

// For 16-bit inputs: whether the payload is short enough to be sent in 32 bits, and the ranks are too many for one
// round.
bool widens(const Operation& op) noexcept {
  return op.call.reduction.narrows() && ranks_in(op) > kRanksInOneRound &&
         op.call.count * size_of(op.call.reduction.accumulate_type()) <= kRecursiveDoublingBytes;
}

Task<void> allreduce(Operation& op) {
  const Reduction& reduction = op.call.reduction;
  if (reduction.takes_partials()) return partial_allreduce(op);
  if (widens(op)) return widened_reduce(op);
  // Trees and rings round partial sums; except recursive doubling, they also rotate the order of ranks.
  const bool in_one_pass = reduction.narrows() || reduction.ordered();
  if (in_one_pass && fits_one_round(ranks_in(op), op.call.bytes())) return one_round_allreduce(op);
  if (reduction.narrows()) return ordered_allreduce(op);
  if (op.call.bytes() <= kRecursiveDoublingBytes) return recursive_doubling_allreduce(op);
  if (reduction.ordered()) return ordered_allreduce(op);
  const bool halves = halving_doubling_applies(ranks_in(op)) && op.call.bytes() <= kHalvingDoublingBytes;
  return halves ? halving_doubling_allreduce(op) : ring_allreduce(op);
}

Task<void> reduce(Operation& op) {
  const Reduction& reduction = op.call.reduction;
  if (reduction.takes_partials()) return partial_reduce(op);
  if (!reduction.narrows() && !reduction.ordered()) return binomial_reduce(op);
  if (widens(op)) return widened_reduce(op);
  return fits_one_round(ranks_in(op), op.call.bytes()) ? one_round_reduce(op) : ordered_reduce(op);
}

Task<void> reduce_scatter(Operation& op) {
  const Reduction& reduction = op.call.reduction;
  if (reduction.takes_partials()) return partial_reduce_scatter(op);
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

}  // namespace aiacc::inter

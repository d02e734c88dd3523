#include "collectives/inter/partial_reduce.h"

#include "collectives/inter/binomial_reduce.h"
#include "collectives/inter/phases.h"
#include "collectives/inter/recursive_doubling_allreduce.h"
#include "collectives/inter/ring_allgather.h"
#include "collectives/inter/ring_reduce_scatter.h"

namespace aiacc::inter {
namespace {

// The reduction with all operands and results in the accumulate type; it includes the scales.
Reduction in_accumulate_type(Reduction reduction) {
  reduction.operands = reduction.results = ElementTypes(reduction.accumulate_type());
  return reduction;
}

// The reduction that produces results in the type of the call.
Reduction in_own_type(Reduction reduction) {
  reduction.operands = reduction.results = {};
  return reduction;
}

// Rounds once; all scales were applied before.
Compute::Done round(Operation& op, const Buffer& into, const Buffer& from) {
  const Reduction& reduction = op.call.reduction;
  return op.team.compute.reduce({&into, 1}, {&from, 1}, into.bytes / reduction.result_bytes(), reduction,
                                {.first = false, .last = false}, op.stop);
}

Task<void> allreduce_in_shards(Operation& op) {
  if (op.call.count == 0) co_return;
  Phases phases(op);
  const Reduction wide = in_accumulate_type(op.call.reduction);
  const Reduction narrow = in_own_type(op.call.reduction);
  const Buffer sum = phases.own_shard(op.send, wide.element_bytes());
  const Buffer own = phases.own_shard(op.recv, narrow.element_bytes());
  Operation scatter = phases.phase(Collective::kReduceScatter, wide, op.send, sum);
  co_await ring_reduce_scatter(scatter);
  co_await round(op, own, sum);
  Operation gather = phases.phase(Collective::kAllgather, narrow, own, op.recv);
  co_await ring_allgather(gather);
}

}  // namespace

Task<void> partial_ring_allreduce(Operation& op) {
  if (ranks_in(op) == 1) return partial_doubling_allreduce(op);
  return allreduce_in_shards(op);
}

Task<void> partial_doubling_allreduce(Operation& op) {
  if (op.call.count == 0) co_return;
  Phases phases(op);
  const Reduction wide = in_accumulate_type(op.call.reduction);
  Operation doubling = phases.whole_phase(Collective::kAllreduce, wide, op.send, op.send);
  co_await recursive_doubling_allreduce(doubling);
  co_await round(op, op.recv, op.send);
}

Task<void> partial_reduce(Operation& op) {
  if (op.call.count == 0) co_return;
  Phases phases(op);
  const Reduction wide = in_accumulate_type(op.call.reduction);
  const bool is_root = op.team.rank == op.call.root;
  Operation tree = phases.whole_phase(Collective::kReduce, wide, op.send, is_root ? op.send : Buffer{});
  co_await binomial_reduce(tree);
  if (is_root) co_await round(op, op.recv, op.send);
}

Task<void> partial_reduce_scatter(Operation& op) {
  const Extent own = op.call.block(position_in(op));
  const Reduction wide = in_accumulate_type(op.call.reduction);
  const std::size_t element = wide.element_bytes();
  const Buffer sum = op.send.slice(own.begin * element, own.count * element);
  Operation ring = op;
  ring.call.reduction = wide;
  ring.recv = sum;
  co_await ring_reduce_scatter(ring);
  if (own.count > 0) co_await round(op, op.recv, sum);
}

Task<void> widened_reduce(Operation& op) {
  if (op.call.count == 0) co_return;
  Phases phases(op);
  Reduction widen = op.call.reduction;
  widen.results = widen.accumulate_type();
  Scratch scratch(op, op.call.count * widen.result_bytes());
  const Buffer wide = scratch.buffer();
  co_await op.team.compute.reduce({&wide, 1}, {&op.send, 1}, op.call.count, widen, {.first = true, .last = false},
                                  op.stop);
  Reduction rest = op.call.reduction;
  rest.prescale = 1.0;
  rest.operands = rest.accumulate_type();
  Operation phase = phases.whole_phase(op.call.kind, rest, wide, op.recv);
  if (op.call.kind == Collective::kReduce) {
    co_await partial_reduce(phase);
  } else {
    co_await partial_doubling_allreduce(phase);
  }
}

}  // namespace aiacc::inter

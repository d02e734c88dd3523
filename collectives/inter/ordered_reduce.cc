#include "collectives/inter/ordered_reduce.h"

#include "collectives/inter/gather.h"
#include "collectives/inter/inter_call.h"
#include "collectives/inter/phases.h"
#include "collectives/inter/ring_allgather.h"

namespace aiacc::inter {
namespace {

// A slot's scratch memory, which holds a segment of every rank.
constexpr std::size_t kScratchBytes = 1 << 20;
constexpr std::size_t kLeastSegmentBytes = 4 << 10;

struct Ordered {
  InterCall call;
  Blocks blocks;
  Buffer input;
  Reduction reduction;

  Buffer segment_of(int block, std::size_t index) const noexcept {
    const Extent segment = blocks.segment_of(block, index);
    return call.part_of(input, {blocks.of(block).begin + segment.begin, segment.count});
  }
};

// Exchanges one segment of every block: each pair of ranks exchanges once, as in an all-to-all.
Task<void> exchange(Ordered& run, std::size_t index, Buffer arrived, Stop& stop) {
  InterCall& call = run.call;
  const int n = call.size();
  const std::size_t mine = run.blocks.segment_of(call.rank(), index).count * call.element_bytes();
  for (int step = 0; step < n; ++step) {
    const int partner = (step - call.rank() + n) % n;
    if (partner == call.rank()) continue;
    const Buffer into = arrived.slice(static_cast<std::size_t>(partner) * mine, mine);
    const Buffer sent = run.segment_of(partner, index);
    if (sent.bytes > 0 && mine > 0) {
      co_await call.send_recv(partner, sent, partner, into, index, stop);
    } else if (sent.bytes > 0) {
      co_await call.send(partner, index, sent, stop);
    } else if (mine > 0) {
      co_await call.recv(partner, index, into, stop);
    }
  }
}

Task<void> slot(Ordered& run, std::size_t index, std::size_t slots, Stop& stop) {
  InterCall& call = run.call;
  const auto n = static_cast<std::size_t>(call.size());
  Scratch scratch(call.op, n * run.blocks.longest_segment() * call.element_bytes());
  std::vector<Buffer> operands(n);
  for (; index < run.blocks.segments(); index += slots) {
    const Extent segment = run.blocks.segment_of(call.rank(), index);
    const std::size_t bytes = segment.count * call.element_bytes();
    co_await exchange(run, index, scratch.buffer(), stop);
    for (std::size_t position = 0; position < n; ++position)
      operands[position] = scratch.buffer().slice(position * bytes, bytes);
    operands[static_cast<std::size_t>(call.rank())] = run.segment_of(call.rank(), index);
    const Buffer result = call.part_of(call.op.recv, segment);
    co_await call.compute().reduce({&result, 1}, operands, segment.count, run.reduction, {.ranks = call.op.inputs()},
                                   stop);
  }
}

Task<void> reduce_alone(Operation& op) {
  co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, op.call.reduction,
                                  {.ranks = op.inputs()}, op.stop);
}

}  // namespace

Task<void> ordered_reduce_scatter(Operation& op) {
  const auto n = static_cast<std::size_t>(ranks_in(op));
  const Blocks blocks(op, std::max(kLeastSegmentBytes, kScratchBytes / n));
  Ordered run{InterCall(op, Algorithm::kOrderedReduce), blocks, op.send, op.call.reduction};
  if (blocks.empty()) co_return;
  // If only some ranks' inputs are not scaled yet, each of these ranks scales its own.
  const bool scales = run.reduction.prescale != 1.0 && is_among_some(op);
  Scratch scaled(op, scales ? op.send.bytes : 0);
  if (scales) {
    const Buffer into = scaled.buffer();
    co_await op.team.compute.reduce({&into, 1}, {&op.send, 1}, op.send.bytes / op.call.element_bytes(), run.reduction,
                                    {.first = true, .last = false, .ranks = op.inputs()}, op.stop);
    run.input = into;
    run.reduction.prescale = 1.0;
  }
  co_await side_by_side(run, std::min(blocks.segments(), kSlots), &slot);
}

Task<void> ordered_allreduce(Operation& op) {
  if (op.call.count == 0) co_return;
  if (ranks_in(op) == 1) {
    co_await reduce_alone(op);
    co_return;
  }
  Phases phases(op);
  const Buffer own = phases.own_shard(op.recv);
  Operation scatter = phases.phase(Collective::kReduceScatter, op.send, own);
  co_await ordered_reduce_scatter(scatter);
  Operation gather = phases.phase(Collective::kAllgather, own, op.recv);
  co_await ring_allgather(gather);
}

Task<void> ordered_reduce(Operation& op) {
  if (op.call.count == 0) co_return;
  if (ranks_in(op) == 1) {
    co_await reduce_alone(op);
    co_return;
  }
  Phases phases(op);
  const bool is_root = op.team.rank == op.call.root;
  Scratch scratch(op, is_root ? 0 : phases.shard_bytes());
  const Buffer own = is_root ? phases.own_shard(op.recv) : scratch.buffer().slice(0, phases.own_shard(op.send).bytes);
  Operation scatter = phases.phase(Collective::kReduceScatter, op.send, own);
  co_await ordered_reduce_scatter(scatter);
  Operation collect = phases.phase(Collective::kGather, own, is_root ? op.recv : Buffer{});
  co_await gather(collect);
}

namespace {

std::string_view ordered_reduce_obstacle(const Shape& shape) noexcept {
  return shape.takes_partials ? kTakesNoPartials : std::string_view();
}

// An exchange of blocks among all pairs, and for reductions of the whole payload the collection of the results.
Cost ordered_reduce_cost(const Shape& shape) noexcept {
  const bool scatters = shape.kind == Collective::kReduceScatter;
  const double n = shape.ranks, block = static_cast<double>(shape.bytes) / (scatters ? 1 : n);
  const double message = std::min<double>(block, kSliceBytes);
  const double steps = (scatters ? 1 : 2) * (n - 1);
  return {.latencies = steps * latencies_of(message),
          .messages = 2 * steps * std::max(1.0, block / message),
          .bytes = steps * block,
          .touched = (n + 1) * block,
          .overlaps = block > kSliceBytes};
}

}  // namespace

constexpr AlgorithmInfo kOrderedAllreduceInfo{Collective::kAllreduce, "ordered", &ordered_reduce_obstacle,
                                              &ordered_reduce_cost, &ordered_allreduce};
constexpr AlgorithmInfo kOrderedReduceInfo{Collective::kReduce, "ordered", &ordered_reduce_obstacle,
                                           &ordered_reduce_cost, &ordered_reduce};
constexpr AlgorithmInfo kOrderedReduceScatterInfo{Collective::kReduceScatter, "ordered", &ordered_reduce_obstacle,
                                                  &ordered_reduce_cost, &ordered_reduce_scatter};

}  // namespace aiacc::inter

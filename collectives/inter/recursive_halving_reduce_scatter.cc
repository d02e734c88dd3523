#include "collectives/inter/recursive_halving_reduce_scatter.h"

#include "collectives/inter/inter_call.h"
#include "collectives/inter/recursive_doubling_allgather.h"

namespace aiacc::inter {

Task<void> recursive_halving_reduce_scatter(Operation& op) {
  if (op.call.count == 0) co_return;
  InterCall call(op, Algorithm::kHalvingReduceScatter);
  const int n = call.size(), rank = call.rank();
  const std::size_t bytes = op.call.bytes();
  const Reduction& reduction = op.call.reduction;
  const auto blocks = [bytes](const Buffer& of, int first, int count) {
    return of.slice(static_cast<std::size_t>(first) * bytes, static_cast<std::size_t>(count) * bytes);
  };
  const bool scale_before = reduction.prescale != 1.0;
  Scratch scaled(op, scale_before ? static_cast<std::size_t>(n) * bytes : 0);
  Scratch scratch(op, static_cast<std::size_t>(n) * bytes);
  const Buffer sums = blocks(scratch.buffer(), 0, n / 2), in = blocks(scratch.buffer(), n / 2, n / 2);
  Buffer input = op.send;
  if (scale_before) {
    input = scaled.buffer();
    co_await op.team.compute.reduce({&input, 1}, {&op.send, 1}, op.call.count * static_cast<std::size_t>(n), reduction,
                                    {.first = true, .last = false, .ranks = op.inputs()}, op.stop);
  }
  const int first_sum = rank & -(n / 2);  // the block at the beginning of `sums`
  std::uint64_t step = 0;
  for (int distance = n / 2; distance > 0; distance /= 2, ++step) {
    const int mine = rank & -distance, partner = rank ^ distance;
    const auto of_this_rank = [&](int first) {
      return step == 0 ? blocks(input, first, distance) : blocks(sums, first - first_sum, distance);
    };
    const Buffer came = blocks(in, 0, distance);
    co_await call.send_recv(partner, of_this_rank(mine ^ distance), partner, came, step, op.stop);
    const bool last = distance == 1;
    const Buffer operands[] = {of_this_rank(mine), came};
    const Buffer into = last ? op.recv : blocks(sums, mine - first_sum, distance);
    co_await op.team.compute.reduce({&into, 1}, operands, op.call.count * static_cast<std::size_t>(distance), reduction,
                                    {.first = false, .last = last, .ranks = op.inputs()}, op.stop);
  }
}

namespace {

std::string_view recursive_halving_reduce_scatter_obstacle(const Shape& shape) noexcept {
  if (shape.takes_partials) return kTakesNoPartials;
  if (shape.narrows) return kRoundsPartialSums;
  return shape.ordered ? kReordersOperands : recursive_doubling_obstacle(shape);
}

Cost recursive_halving_reduce_scatter_cost(const Shape& shape) noexcept {
  const double rounds = rounds_among(shape.ranks), bytes = static_cast<double>(shape.bytes);
  return {.latencies = rounds,
          .messages = 2 * rounds,
          .bytes = (shape.ranks - 1) * bytes,
          .touched = 3 * (shape.ranks - 1) * bytes};
}

}  // namespace

constexpr AlgorithmInfo kRecursiveHalvingReduceScatterInfo{
    Collective::kReduceScatter, "recursive-halving", &recursive_halving_reduce_scatter_obstacle,
    &recursive_halving_reduce_scatter_cost, &recursive_halving_reduce_scatter};

}  // namespace aiacc::inter

#include "collectives/inter/recursive_doubling_allreduce.h"

#include <bit>

#include "collectives/inter/inter_call.h"
#include "collectives/inter/partial_reduce.h"
#include "collectives/inter/select.h"

namespace aiacc::inter {
namespace {

// acc = lower op upper, where acc is one of the operands.
Compute::Done add(InterCall& call, const Buffer& acc, const Buffer& lower, const Buffer& upper, Compute::Step step) {
  const Buffer operands[] = {lower, upper};
  return call.compute().reduce({&acc, 1}, operands, call.op.call.count, call.op.call.reduction, step, call.op.stop);
}

}  // namespace

Task<void> recursive_doubling_allreduce(Operation& op) {
  const int n = ranks_in(op);
  const int rank = position_in(op);
  if (op.call.count == 0) co_return;
  const Reduction& reduction = op.call.reduction;
  if (n == 1) {
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, reduction, {.ranks = op.inputs()},
                                    op.stop);
    co_return;
  }
  InterCall call(op, Algorithm::kRecursiveDoubling);
  const Buffer acc = op.recv;
  const bool scale_before = reduction.prescale != 1.0;
  if (scale_before) {
    co_await op.team.compute.reduce({&acc, 1}, {&op.send, 1}, op.call.count, reduction,
                                    {.first = true, .last = false, .ranks = op.inputs()}, op.stop);
  } else if (op.send.data != op.recv.data) {
    co_await op.team.compute.copy(acc, op.send, op.stop);
  }

  const int rounds = std::bit_width(static_cast<unsigned>(n)) - 1;
  // The first 2·folded ranks form pairs (0,1), (2,3) …; the odd rank of each pair continues.
  const int folded = n - (1 << rounds);
  Scratch scratch(op, op.call.bytes());
  const Buffer arrived = scratch.buffer();
  const std::uint64_t unfold = static_cast<std::uint64_t>(rounds) + 1;
  if (rank < 2 * folded && rank % 2 == 0) {
    co_await call.send(rank + 1, 0, acc, op.stop);
    co_await call.recv(rank + 1, unfold, acc, op.stop);
    co_return;
  }
  if (rank < 2 * folded) {
    co_await call.recv(rank - 1, 0, arrived, op.stop);
    co_await add(call, acc, arrived, acc, {.first = false, .last = false, .ranks = op.inputs()});
  }
  const int position = rank < 2 * folded ? rank / 2 : rank - folded;
  for (int round = 0; round < rounds; ++round) {
    const int partner = position ^ (1 << round);
    const int peer = partner < folded ? 2 * partner + 1 : partner + folded;
    co_await call.send_recv(peer, acc, peer, arrived, static_cast<std::uint64_t>(round) + 1, op.stop);
    const bool mine_first = position < partner;
    co_await add(call, acc, mine_first ? acc : arrived, mine_first ? arrived : acc,
                 {.first = false, .last = round == rounds - 1, .ranks = op.inputs()});
  }
  if (rank < 2 * folded) co_await call.send(rank - 1, unfold, acc, op.stop);
}

namespace {

// 16-bit floats travel as fp32 partial sums, which are rounded at the end.
Task<void> run_recursive_doubling_allreduce(Operation& op) {
  if (op.call.reduction.takes_partials()) return partial_doubling_allreduce(op);
  return op.call.reduction.narrows() ? widened_reduce(op) : recursive_doubling_allreduce(op);
}

std::string_view recursive_doubling_allreduce_obstacle(const Shape& shape) noexcept {
  const bool too_long = shape.narrows && shape.wide_bytes > kRecursiveDoublingBytes;
  return too_long ? "16-bit floats travel in fp32, of which it sends no more than 64K" : std::string_view();
}

Cost recursive_doubling_allreduce_cost(const Shape& shape) noexcept {
  const int doublings = std::bit_width(static_cast<unsigned>(shape.ranks)) - 1;
  const bool folds = shape.ranks != 1 << doublings;
  const auto bytes = static_cast<double>(shape.wide_bytes);
  const double steps = doublings + (folds ? 2 : 0), sums = doublings + (folds ? 1 : 0);
  return {.latencies = steps * latencies_of_swap(bytes, shape),
          .messages = 2 * steps,
          .bytes = steps * bytes,
          .touched = (3 * sums + 2) * bytes};
}

}  // namespace

constexpr AlgorithmInfo kRecursiveDoublingAllreduceInfo{
    Collective::kAllreduce, "recursive-doubling", &recursive_doubling_allreduce_obstacle,
    &recursive_doubling_allreduce_cost, &run_recursive_doubling_allreduce};

}  // namespace aiacc::inter

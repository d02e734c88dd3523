#include "collectives/inter/binomial_reduce.h"

#include "collectives/inter/inter_call.h"
#include "collectives/inter/partial_reduce.h"
#include "collectives/inter/select.h"

namespace aiacc::inter {
namespace {

struct ReduceTree {
  InterCall call;
  Parts chunks;
};

Task<void> slot(ReduceTree& tree, std::size_t index, std::size_t slots, Stop& stop) {
  InterCall& call = tree.call;
  const int n = call.size();
  const int root = call.root();
  const int position = (call.rank() - root + n) % n;  // in the tree, whose root has position 0
  const bool top = position == 0;
  const Reduction& reduction = call.op.call.reduction;
  const std::size_t bytes = call.element_bytes();
  Scratch scratch(call.op, tree.chunks.length(0) * bytes);
  Scratch partial(call.op, top ? 0 : tree.chunks.length(0) * bytes);

  for (; index < tree.chunks.parts; index += slots) {
    const std::size_t count = tree.chunks.length(index);
    const std::size_t offset = tree.chunks.offset(index) * bytes;
    const Buffer input = call.op.send.slice(offset, count * bytes);
    const Buffer acc = top ? call.op.recv.slice(offset, count * bytes) : partial.buffer().slice(0, count * bytes);
    const Buffer arrived = scratch.buffer().slice(0, count * bytes);
    Buffer mine = input;  // becomes `acc` with the first sum
    if (reduction.prescale != 1.0) {
      co_await call.compute().reduce({&acc, 1}, {&input, 1}, count, reduction,
                                     {.first = true, .last = false, .ranks = call.op.inputs()}, stop);
      mine = acc;
    }
    int distance = 1;
    for (; distance < n && (position & distance) == 0; distance *= 2) {
      if (position + distance >= n) continue;
      co_await call.recv((position + distance + root) % n, index, arrived, stop);
      const Buffer operands[] = {mine, arrived};
      const bool last = top && distance * 2 >= n;
      co_await call.compute().reduce({&acc, 1}, operands, count, reduction,
                                     {.first = false, .last = last, .ranks = call.op.inputs()}, stop);
      mine = acc;
    }
    if (!top) co_await call.send((position - distance + root) % n, index, mine, stop);
  }
}

}  // namespace

Task<void> binomial_reduce(Operation& op) {
  if (op.call.count == 0) co_return;
  if (ranks_in(op) == 1) {
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, op.call.reduction,
                                    {.ranks = op.inputs()}, op.stop);
    co_return;
  }
  const std::size_t chunks = pieces_of(op.call.bytes(), kSliceBytes);
  ReduceTree tree{InterCall(op, Algorithm::kBinomialReduce), Parts{op.call.count, chunks}};
  const int n = tree.call.size();
  const int position = (tree.call.rank() - tree.call.root() + n) % n;
  const int neighbour =
      position == 0 ? 1 : position - (position & -position);  // a child of the root, and others' parent
  co_await side_by_side(tree, tree.call.slots_towards((neighbour + tree.call.root()) % n, chunks), &slot);
}

namespace {

// 16-bit floats travel as fp32 partial sums, which are rounded at the end.
Task<void> run_binomial_reduce(Operation& op) {
  if (op.call.reduction.takes_partials()) return partial_reduce(op);
  return op.call.reduction.narrows() ? widened_reduce(op) : binomial_reduce(op);
}

std::string_view binomial_reduce_obstacle(const Shape& shape) noexcept {
  if (shape.ordered) return kReordersOperands;
  const bool too_long = shape.narrows && shape.wide_bytes > kRecursiveDoublingBytes;
  return too_long ? "16-bit floats travel in fp32, of which it sends no more than 64K" : std::string_view();
}

Cost binomial_reduce_cost(const Shape& shape) noexcept {
  const double rounds = rounds_among(shape.ranks), bytes = static_cast<double>(shape.wide_bytes);
  const double chunk = std::min<double>(bytes, kSliceBytes), chunks = std::max(1.0, bytes / kSliceBytes);
  return {.latencies = rounds * latencies_of(chunk),
          .messages = rounds * chunks,
          .bytes = rounds * bytes,
          .touched = 3 * rounds * bytes,
          .overlaps = chunks > 1};
}

}  // namespace

constexpr AlgorithmInfo kBinomialReduceInfo{Collective::kReduce, "binomial", &binomial_reduce_obstacle,
                                            &binomial_reduce_cost, &run_binomial_reduce};

}  // namespace aiacc::inter

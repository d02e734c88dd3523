#include "collectives/inter/binomial_reduce.h"

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

struct Tree {
  InterCall call;
  Parts chunks;
};

Task<void> slot(Tree& tree, std::size_t index, std::size_t slots, Stop& stop) {
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
  Tree tree{InterCall(op, Algorithm::kBinomialReduce), Parts{op.call.count, chunks}};
  co_await side_by_side(tree, std::min(chunks, kSlots), &slot);
}

}  // namespace aiacc::inter

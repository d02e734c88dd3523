#include "collectives/net/binomial_reduce.h"

#include "collectives/net/net_call.h"

namespace aiacc::net {
namespace {

struct Tree {
  NetCall call;
  Parts chunks;
};

Task<void> lane(Tree& tree, std::size_t index, std::size_t lanes, Stop& stop) {
  NetCall& call = tree.call;
  const int n = call.size();
  const int root = call.root();
  const int place = (call.rank() - root + n) % n;  // in the tree, whose top is 0
  const bool top = place == 0;
  const Reduction& reduction = call.op.call.reduction;
  const std::size_t bytes = call.element_bytes();
  Scratch scratch(call.op, tree.chunks.length(0) * bytes);
  Scratch partial(call.op, top ? 0 : tree.chunks.length(0) * bytes);

  for (; index < tree.chunks.parts; index += lanes) {
    const std::size_t count = tree.chunks.length(index);
    const std::size_t offset = tree.chunks.offset(index) * bytes;
    const Buffer input = call.op.send.slice(offset, count * bytes);
    const Buffer acc = top ? call.op.recv.slice(offset, count * bytes) : partial.buffer().slice(0, count * bytes);
    const Buffer arrived = scratch.buffer().slice(0, count * bytes);
    Buffer mine = input;  // moves to `acc` with the first sum
    if (reduction.prescale != 1.0) {
      co_await call.compute().reduce({&acc, 1}, {&input, 1}, count, reduction,
                                     {.first = true, .last = false, .ranks = call.op.inputs()});
      mine = acc;
    }
    int distance = 1;
    for (; distance < n && (place & distance) == 0; distance *= 2) {
      if (place + distance >= n) continue;
      co_await call.recv((place + distance + root) % n, index, arrived, stop);
      const Buffer operands[] = {mine, arrived};
      const bool last = top && distance * 2 >= n;
      co_await call.compute().reduce({&acc, 1}, operands, count, reduction,
                                     {.first = false, .last = last, .ranks = call.op.inputs()});
      mine = acc;
    }
    if (!top) co_await call.send((place - distance + root) % n, index, mine, stop);
  }
}

}  // namespace

Task<void> binomial_reduce(Operation& op) {
  if (op.call.count == 0) co_return;
  if (ranks_in(op) == 1) {
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, op.call.reduction,
                                    {.ranks = op.inputs()});
    co_return;
  }
  const std::size_t chunks = pieces_of(op.call.bytes(), kSliceBytes);
  Tree tree{NetCall(op, Algorithm::kBinomialReduce), Parts{op.call.count, chunks}};
  co_await side_by_side(tree, std::min(chunks, kLanes), &lane);
}

}  // namespace aiacc::net

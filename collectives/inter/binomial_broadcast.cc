#include "collectives/inter/binomial_broadcast.h"

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

struct BroadcastTree {
  InterCall call;
  Buffer buffer;
  Parts chunks;
};

Task<void> slot(BroadcastTree& tree, std::size_t index, std::size_t slots, Stop& stop) {
  InterCall& call = tree.call;
  const int n = call.size();
  const int root = call.root();
  const int position = (call.rank() - root + n) % n;  // in the tree, whose root has position 0
  int below = 1;                                      // this rank's subtree is [position, position + below)
  while (below < n && (position & below) == 0) below *= 2;
  for (; index < tree.chunks.parts; index += slots) {
    const std::size_t bytes = call.element_bytes();
    const Buffer chunk = tree.buffer.slice(tree.chunks.offset(index) * bytes, tree.chunks.length(index) * bytes);
    if (position != 0) co_await call.recv((position - below + root) % n, index, chunk, stop);
    for (int distance = below / 2; distance > 0; distance /= 2) {
      if (position + distance < n) co_await call.send((position + distance + root) % n, index, chunk, stop);
    }
  }
}

}  // namespace

Task<void> binomial_broadcast(Operation& op) {
  if (op.call.count == 0) co_return;
  const Buffer buffer = op.recv.bytes != 0 ? op.recv : op.send;
  if (op.team.rank == op.call.root && op.send.bytes != 0 && op.send.data != buffer.data) {
    co_await op.team.compute.copy(buffer, op.send, op.stop);
  }
  if (ranks_in(op) == 1) co_return;
  const std::size_t chunks = pieces_of(op.call.bytes(), kSliceBytes);
  BroadcastTree tree{InterCall(op, Algorithm::kBinomialBroadcast), buffer, Parts{op.call.count, chunks}};
  const int n = tree.call.size();
  const int position = (tree.call.rank() - tree.call.root() + n) % n;
  const int neighbour =
      position == 0 ? 1 : position - (position & -position);  // a child of the root, and others' parent
  co_await side_by_side(tree, tree.call.slots_towards((neighbour + tree.call.root()) % n, chunks), &slot);
}

namespace {

// The root sends every chunk to each of its children.
Cost binomial_broadcast_cost(const Shape& shape) noexcept {
  const double rounds = rounds_among(shape.ranks), bytes = static_cast<double>(shape.bytes);
  const double chunk = std::min<double>(bytes, kSliceBytes), chunks = std::max(1.0, bytes / kSliceBytes);
  return {.latencies = rounds * latencies_of(chunk), .messages = rounds * chunks, .bytes = rounds * bytes};
}

}  // namespace

constexpr AlgorithmInfo kBinomialBroadcastInfo{Collective::kBroadcast, "binomial", &no_obstacle,
                                               &binomial_broadcast_cost, &binomial_broadcast};

}  // namespace aiacc::inter

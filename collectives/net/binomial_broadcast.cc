#include "collectives/net/binomial_broadcast.h"

#include "collectives/net/net_call.h"

namespace aiacc::net {
namespace {

struct Tree {
  NetCall call;
  Buffer buffer;
  Parts chunks;
};

Task<void> lane(Tree& tree, std::size_t index, std::size_t lanes, Stop& stop) {
  NetCall& call = tree.call;
  const int n = call.size();
  const int root = call.root();
  const int place = (call.rank() - root + n) % n;  // in the tree, whose top is 0
  int below = 1;                                   // my subtree is [place, place + below)
  while (below < n && (place & below) == 0) below *= 2;
  for (; index < tree.chunks.parts; index += lanes) {
    const std::size_t bytes = call.element_bytes();
    const Buffer chunk = tree.buffer.slice(tree.chunks.offset(index) * bytes, tree.chunks.length(index) * bytes);
    if (place != 0) co_await call.recv((place - below + root) % n, index, chunk, stop);
    for (int distance = below / 2; distance > 0; distance /= 2) {
      if (place + distance < n) co_await call.send((place + distance + root) % n, index, chunk, stop);
    }
  }
}

}  // namespace

Task<void> binomial_broadcast(Operation& op) {
  if (op.call.count == 0) co_return;
  const Buffer buffer = op.recv.bytes != 0 ? op.recv : op.send;
  if (op.team.rank == op.call.root && op.send.bytes != 0 && op.send.data != buffer.data) {
    co_await op.team.compute.copy(buffer, op.send);
  }
  if (ranks_in(op) == 1) co_return;
  const std::size_t chunks = pieces_of(op.call.bytes(), kSliceBytes);
  Tree tree{NetCall(op, Algorithm::kBinomialBroadcast), buffer, Parts{op.call.count, chunks}};
  co_await side_by_side(tree, std::min(chunks, kLanes), &lane);
}

}  // namespace aiacc::net

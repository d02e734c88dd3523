#include "collectives/inter/binomial_gather.h"

#include <algorithm>

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

// Positions count from the root, so the blocks of a subtree are consecutive: [position, position + width).
struct Tree {
  InterCall call;
  std::size_t bytes;  // of a block
  int position;
  int below = 1;  // the distance to the parent, and the width of a subtree that does not reach the end

  explicit Tree(Operation& op)
      : call(op, Algorithm::kBinomialGather),
        bytes(op.call.bytes()),
        position((call.rank() - call.root() + call.size()) % call.size()) {
    while (below < call.size() && (position & below) == 0) below *= 2;
  }
  bool top() const noexcept { return position == 0; }
  int rank_at(int its_position) const noexcept { return (its_position + call.root()) % call.size(); }
  int parent() const noexcept { return rank_at(position - below); }
  // Of the subtree whose top is `distance` from here, if its parent is this rank; 0: there is none.
  int width_at(int distance) const noexcept { return std::clamp(call.size() - position - distance, 0, distance); }
  std::size_t own_bytes() const noexcept {
    return static_cast<std::size_t>(std::min(below, call.size() - position)) * bytes;
  }
  Buffer blocks(const Buffer& of, int first, int number) const noexcept {
    return of.slice(static_cast<std::size_t>(first) * bytes, static_cast<std::size_t>(number) * bytes);
  }
};

// At the root, the place of a subtree's blocks in the buffer of all blocks, which are in the order of ranks: one piece, or two
// if the order of positions passes the last rank there.
struct Place {
  Buffer first;
  Buffer rest;

  Place(const Tree& tree, const Buffer& all, int distance) {
    const int from = tree.rank_at(distance), width = tree.width_at(distance);
    const int before_end = std::min(width, tree.call.size() - from);
    first = tree.blocks(all, from, before_end);
    rest = tree.blocks(all, 0, width - before_end);
  }
};

Task<void> copy_to(Tree& tree, Place place, Buffer from) {
  Compute& compute = tree.call.compute();
  co_await compute.copy(place.first, from.slice(0, place.first.bytes), tree.call.op.stop);
  co_await compute.copy(place.rest, from.slice(place.first.bytes, place.rest.bytes), tree.call.op.stop);
}

Task<void> copy_from(Tree& tree, Buffer to, Place place) {
  Compute& compute = tree.call.compute();
  co_await compute.copy(to.slice(0, place.first.bytes), place.first, tree.call.op.stop);
  co_await compute.copy(to.slice(place.first.bytes, place.rest.bytes), place.rest, tree.call.op.stop);
}

// Memory for one message of the root in two pieces.
std::size_t spare_bytes(const Tree& tree, const Buffer& all) noexcept {
  std::size_t longest = 0;
  for (int distance = 1; tree.top() && distance < tree.call.size(); distance *= 2) {
    const Place place(tree, all, distance);
    if (place.rest.bytes > 0) longest = std::max(longest, place.first.bytes + place.rest.bytes);
  }
  return longest;
}

Task<void> gather_at_root(Tree& tree) {
  Operation& op = tree.call.op;
  const Buffer own = tree.blocks(op.recv, tree.call.rank(), 1);
  if (own.data != op.send.data || own.data == nullptr) co_await tree.call.compute().copy(own, op.send, op.stop);
  Scratch spare(op, spare_bytes(tree, op.recv));
  for (int distance = 1; distance < tree.call.size(); distance *= 2) {
    const Place place(tree, op.recv, distance);
    const bool whole = place.rest.bytes == 0;
    const Buffer into = whole ? place.first : spare.buffer().slice(0, place.first.bytes + place.rest.bytes);
    co_await tree.call.recv(tree.rank_at(distance), 0, into, op.stop);
    if (!whole) co_await copy_to(tree, place, into);
  }
}

Task<void> gather_below(Tree& tree) {
  Operation& op = tree.call.op;
  const std::size_t bytes = tree.own_bytes();
  const bool leaf = bytes == tree.bytes;
  Scratch scratch(op, leaf ? 0 : bytes);
  const Buffer blocks = leaf ? op.send : scratch.buffer();
  if (!leaf) co_await tree.call.compute().copy(blocks.slice(0, tree.bytes), op.send, op.stop);
  for (int distance = 1; distance < tree.below && tree.width_at(distance) > 0; distance *= 2) {
    const Buffer into = tree.blocks(blocks, distance, tree.width_at(distance));
    co_await tree.call.recv(tree.rank_at(tree.position + distance), 0, into, op.stop);
  }
  co_await tree.call.send(tree.parent(), 0, blocks.slice(0, bytes), op.stop);
}

Task<void> scatter_at_root(Tree& tree) {
  Operation& op = tree.call.op;
  Scratch spare(op, spare_bytes(tree, op.send));
  for (int distance = tree.below / 2; distance > 0; distance /= 2) {
    const Place place(tree, op.send, distance);
    const bool whole = place.rest.bytes == 0;
    const Buffer from = whole ? place.first : spare.buffer().slice(0, place.first.bytes + place.rest.bytes);
    if (!whole) co_await copy_from(tree, from, place);
    co_await tree.call.send(tree.rank_at(distance), 0, from, op.stop);
  }
  const Buffer own = tree.blocks(op.send, tree.call.rank(), 1);
  if (own.data != op.recv.data || own.data == nullptr) co_await tree.call.compute().copy(op.recv, own, op.stop);
}

Task<void> scatter_below(Tree& tree) {
  Operation& op = tree.call.op;
  const std::size_t bytes = tree.own_bytes();
  const bool leaf = bytes == tree.bytes;
  Scratch scratch(op, leaf ? 0 : bytes);
  const Buffer blocks = leaf ? op.recv : scratch.buffer().slice(0, bytes);
  co_await tree.call.recv(tree.parent(), 0, blocks, op.stop);
  for (int distance = tree.below / 2; distance > 0; distance /= 2) {
    const int width = tree.width_at(distance);
    if (width == 0) continue;
    co_await tree.call.send(tree.rank_at(tree.position + distance), 0, tree.blocks(blocks, distance, width), op.stop);
  }
  if (!leaf) co_await tree.call.compute().copy(op.recv, blocks.slice(0, tree.bytes), op.stop);
}

}  // namespace

Task<void> binomial_gather(Operation& op) {
  if (op.call.count == 0) co_return;
  Tree tree(op);
  if (tree.top()) {
    co_await gather_at_root(tree);
  } else {
    co_await gather_below(tree);
  }
}

Task<void> binomial_scatter(Operation& op) {
  if (op.call.count == 0) co_return;
  Tree tree(op);
  if (tree.top()) {
    co_await scatter_at_root(tree);
  } else {
    co_await scatter_below(tree);
  }
}

namespace {

std::string_view binomial_gather_obstacle(const Shape& shape) noexcept {
  if (shape.uneven) return "it needs blocks of one length";
  return shape.skips_host ? "it needs one rank of each host" : std::string_view();
}

// The root's messages are those of the largest subtrees.
Cost binomial_gather_cost(const Shape& shape) noexcept {
  const double rounds = rounds_among(shape.ranks), n = shape.ranks, bytes = static_cast<double>(shape.bytes);
  double latencies = 0;
  for (double width = 1; 2 * width <= n; width *= 2) latencies += latencies_of(width * bytes);
  return {.latencies = latencies, .messages = rounds + 1, .bytes = (n - 1) * bytes, .touched = 2 * bytes};
}

}  // namespace

constexpr AlgorithmInfo kBinomialGatherInfo{Collective::kGather, "binomial", &binomial_gather_obstacle,
                                            &binomial_gather_cost, &binomial_gather};
constexpr AlgorithmInfo kBinomialScatterInfo{Collective::kScatter, "binomial", &binomial_gather_obstacle,
                                             &binomial_gather_cost, &binomial_scatter};

}  // namespace aiacc::inter

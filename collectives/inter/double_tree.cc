#include "collectives/inter/double_tree.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <optional>
#include <span>
#include <utility>

#include "collectives/inter/two_trees.h"

namespace aiacc::inter {
namespace {

// The best length of a chunk on a usual network. Where chunks go one way only, nothing brings back the credit of eager ones, so
// all of a long payload are announced (RTS).
std::size_t tree_chunk_bytes(const Shape& shape) noexcept {
  constexpr NetworkModel kUsual;
  constexpr std::size_t kShortestAnnouncedChunk = 96 << 10;
  const double best = std::sqrt(2 * kUsual.message_us * kUsual.bytes_per_us * static_cast<double>(shape.wide_bytes) /
                                (3 * std::max(1.0, rounds_among(shape.ranks))));
  const bool one_way = shape.kind != Collective::kAllreduce;
  const bool eager = !one_way || shape.wide_bytes / 2 <= Mailbox::kCreditBytes;
  return std::clamp(static_cast<std::size_t>(best), eager ? kShortestTreeChunk : kShortestAnnouncedChunk, kSliceBytes);
}

// One of the trees, with the elements that it carries.
struct TreePart {
  TreeNode node;
  bool root_is_last;  // its operand comes after its child's
  Extent elements;
  std::size_t chunks;
  std::deque<Event> went_up = {};  // by chunk: this rank's sum of it is with the parent, or complete at the root

  bool is_root() const noexcept { return node.parent < 0; }
  Extent chunk(std::size_t index) const noexcept {
    const Parts parts{elements.count, chunks};
    return {elements.begin + parts.offset(index), parts.length(index)};
  }
  std::size_t longest() const noexcept { return Parts{elements.count, chunks}.length(0); }
};

struct DoubleTree {
  InterCall call;
  bool up, down;
  Buffer result;           // op.recv, or what a broadcast distributes
  Buffer sums = {};        // where this rank's sums may be made, of all elements; without bytes: in scratch memory
  Reduction widen = {};    // of this rank's own elements before the first sum
  Reduction partial = {};  // below the root
  Reduction last = {};     // at the root
  std::array<std::optional<TreePart>, TwoTrees::kTrees> trees = {};

  std::size_t sum_bytes() const noexcept { return partial.element_bytes(); }
  std::size_t result_bytes() const noexcept { return last.result_bytes(); }
  bool has_sums() const noexcept { return sums.bytes > 0; }
  // Whether its own elements have to be widened or scaled before they are added or sent.
  bool prepares() const noexcept { return call.op.call.reduction.narrows() || widen.prescale != 1.0; }
  std::uint64_t step(int tree, std::size_t chunk) const noexcept {
    return TwoTrees::kTrees * chunk + static_cast<std::uint64_t>(tree);
  }
};

Buffer elements_of(const Buffer& buffer, Extent extent, std::size_t element) noexcept {
  return buffer.slice(extent.begin * element, extent.count * element);
}

Task<void> receive_operand(InterCall& call, int from, std::uint64_t step, Buffer into, Stop& stop) {
  co_await call.recv(from, step, into, stop);
}

// Both are posted at once, so that neither message waits for the other.
Task<void> receive_operands(DoubleTree& run, int tree, std::size_t index, const Buffer& left, const Buffer& right,
                            Stop& stop) {
  const TreeNode& node = run.trees[static_cast<std::size_t>(tree)]->node;
  const std::uint64_t step = run.step(tree, index);
  if (node.left < 0 || node.right < 0) {
    const bool is_left = node.left >= 0;
    co_await run.call.recv(is_left ? node.left : node.right, step, is_left ? left : right, stop);
    co_return;
  }
  Scope scope(run.call.op.team.loop, stop);
  scope.spawn(receive_operand(run.call, node.left, step, left, scope.stop()));
  scope.spawn(receive_operand(run.call, node.right, step, right, scope.stop()));
  co_await scope.join();
}

// Sums of the chunks `index`, `index` + `slots` and so on, up to this rank's parent.
Task<void> go_up(DoubleTree& run, int tree, std::size_t index, std::size_t slots, Stop& stop) {
  InterCall& call = run.call;
  TreePart& part = *run.trees[static_cast<std::size_t>(tree)];
  const TreeNode& node = part.node;
  const std::size_t room = part.longest() * run.sum_bytes();
  const int ranks = call.op.inputs();
  const bool adds = !node.is_leaf();
  Scratch left(call.op, node.left < 0 ? 0 : room), right(call.op, node.right < 0 ? 0 : room);
  Scratch own(call.op, run.has_sums() || (!run.prepares() && !adds) ? 0 : room);
  for (; index < part.chunks; index += slots) {
    const Extent extent = part.chunk(index);
    const std::size_t bytes = extent.count * run.sum_bytes();
    const Buffer sum = run.has_sums() ? elements_of(run.sums, extent, run.sum_bytes()) : own.buffer().slice(0, bytes);
    Buffer mine = elements_of(call.op.send, extent, run.widen.element_bytes());
    if (run.prepares()) {
      co_await call.compute().reduce({&sum, 1}, {&mine, 1}, extent.count, run.widen,
                                     {.first = true, .last = false, .ranks = ranks}, stop);
      mine = sum;
    }
    Buffer goes = mine;
    if (adds) {
      if (!part.is_root()) call.send_early_rts(node.parent, run.step(tree, index), bytes);
      const Buffer below = left.buffer().slice(0, node.left < 0 ? 0 : bytes);
      const Buffer above = right.buffer().slice(0, node.right < 0 ? 0 : bytes);
      co_await receive_operands(run, tree, index, below, above, stop);
      std::array<Buffer, 3> operands;
      std::size_t count = 0;
      if (node.left >= 0) operands[count++] = below;
      operands[count++] = mine;
      if (node.right >= 0) operands[count++] = above;
      if (part.is_root() && part.root_is_last) std::swap(operands[0], operands[1]);
      goes = part.is_root() ? elements_of(run.result, extent, run.result_bytes()) : sum;
      co_await call.compute().reduce({&goes, 1}, std::span(operands).first(count), extent.count,
                                     part.is_root() ? run.last : run.partial,
                                     {.first = false, .last = part.is_root(), .ranks = ranks}, stop);
    }
    if (!part.is_root()) co_await call.send(node.parent, run.step(tree, index), goes, stop);
    if (run.down) part.went_up[index].set();
  }
}

// The result of the same chunks, from this rank's parent to its children.
Task<void> go_down(DoubleTree& run, int tree, std::size_t index, std::size_t slots, Stop& stop) {
  InterCall& call = run.call;
  TreePart& part = *run.trees[static_cast<std::size_t>(tree)];
  const TreeNode& node = part.node;
  for (; index < part.chunks; index += slots) {
    const std::uint64_t step = run.step(tree, index);
    const Buffer chunk = elements_of(run.result, part.chunk(index), run.result_bytes());
    // While the chunk arrives here, the children grant it.
    if (!part.is_root()) {
      for (const int child : {node.left, node.right}) {
        if (child >= 0) call.send_early_rts(child, step, chunk.bytes);
      }
    }
    // Its memory may be that of the sum.
    if (run.up) co_await part.went_up[index].wait(stop);
    if (!part.is_root()) co_await call.recv(node.parent, step, chunk, stop);
    for (const int child : {node.left, node.right}) {
      if (child >= 0) co_await call.send(child, step, chunk, stop);
    }
  }
}

// Chunks that are on their way in one direction at once: as many bytes as of a ring.
std::size_t slots_of_tree(std::size_t bytes_of_chunk, std::size_t chunks) noexcept {
  constexpr std::size_t kMost = 4 * kSlots;
  return std::min(chunks, std::clamp(kSlots * kSliceBytes / std::max<std::size_t>(1, bytes_of_chunk), kSlots, kMost));
}

Task<void> run_trees(DoubleTree& run, const TwoTrees& layout) {
  Operation& op = run.call.op;
  const std::size_t longest = tree_chunk_bytes(shape_of(op));
  const Parts halves{op.call.count, TwoTrees::kTrees};
  Scope scope(op.team.loop, op.stop);
  for (int tree = 0; tree < TwoTrees::kTrees; ++tree) {
    const auto half = static_cast<std::size_t>(tree);
    const std::size_t count = halves.length(half);
    if (count == 0) continue;
    const std::size_t chunks = std::min(count, pieces_of(count * run.sum_bytes(), longest));
    TreePart& part = run.trees[half].emplace(TreePart{.node = layout.node_of(tree, run.call.rank()),
                                                      .root_is_last = layout.root(tree) != layout.root(0),
                                                      .elements = {halves.offset(half), count},
                                                      .chunks = chunks});
    for (std::size_t chunk = 0; run.up && run.down && chunk < chunks; ++chunk) part.went_up.emplace_back(op.team.loop);
    const std::size_t slots = slots_of_tree(part.longest() * run.sum_bytes(), chunks);
    for (std::size_t slot = 0; run.up && slot < slots; ++slot) scope.spawn(go_up(run, tree, slot, slots, scope.stop()));
    for (std::size_t slot = 0; run.down && slot < slots; ++slot)
      scope.spawn(go_down(run, tree, slot, slots, scope.stop()));
  }
  co_await scope.join();
}

// What the sums of a reduction are made of.
void set_reductions(DoubleTree& run) {
  const Reduction& whole = run.call.op.call.reduction;
  const bool wide = whole.narrows() || whole.takes_partials();
  run.widen = run.partial = run.last = whole;
  if (!wide) return;
  const ElementTypes sums(whole.accumulate_type());
  run.widen.results = run.partial.operands = run.partial.results = run.last.operands = sums;
  run.last.results = {};
}

Task<void> reduce_by_trees(Operation& op, bool to_all) {
  if (op.call.count == 0) co_return;
  if (ranks_in(op) == 1) {
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, op.call.reduction,
                                    {.ranks = op.inputs()}, op.stop);
    co_return;
  }
  DoubleTree run{.call = InterCall(op, Algorithm::kDoubleTree), .up = true, .down = to_all, .result = op.recv};
  set_reductions(run);
  if (op.call.reduction.takes_partials()) {
    run.sums = op.send;
  } else if (to_all && !op.call.reduction.narrows()) {
    run.sums = op.recv;
  }
  const int n = run.call.size();
  co_await run_trees(run, to_all ? TwoTrees::in_order(n) : TwoTrees::from(run.call.root(), n));
}

}  // namespace

Task<void> double_tree_allreduce(Operation& op) { return reduce_by_trees(op, true); }
Task<void> double_tree_reduce(Operation& op) { return reduce_by_trees(op, false); }

Task<void> double_tree_broadcast(Operation& op) {
  if (op.call.count == 0) co_return;
  const Buffer buffer = op.recv.bytes != 0 ? op.recv : op.send;
  if (op.team.rank == op.call.root && op.send.bytes != 0 && op.send.data != buffer.data) {
    co_await op.team.compute.copy(buffer, op.send, op.stop);
  }
  if (ranks_in(op) == 1) co_return;
  DoubleTree run{.call = InterCall(op, Algorithm::kDoubleTree), .up = false, .down = true, .result = buffer};
  run.widen = run.partial = run.last = op.call.reduction;  // nothing is added: 16-bit elements travel as they are
  co_await run_trees(run, TwoTrees::from(run.call.root(), run.call.size()));
}

namespace {

std::string_view double_tree_reduce_obstacle(const Shape& shape) noexcept {
  return shape.ordered ? kReordersOperands : std::string_view();
}

// Bytes that the busiest rank reads and writes in sums, for each of a chunk of both trees. The root of a reduce has one child in
// either tree. So has the last of an odd number of ranks in an allreduce, which is the root of one.
double sums_of_chunk(const Shape& shape) noexcept {
  if (shape.kind == Collective::kBroadcast) return 0;
  const double widened = shape.narrows ? 3 : 0;
  if (shape.kind == Collective::kReduce) return 6 + widened;
  return widened + (shape.ranks == 2 ? 3 : shape.ranks % 2 == 0 ? 4 : 6);
}

// All ranks announce their first chunks at once, so an RTS and a CTS add two latencies to the whole.
Cost double_tree_cost(const Shape& shape) noexcept {
  const bool up = shape.kind != Collective::kBroadcast, down = shape.kind != Collective::kReduce;
  const double levels = rounds_among(shape.ranks);
  const auto wide = static_cast<double>(shape.wide_bytes);
  const auto own = static_cast<double>(shape.bytes);
  const double chunk = std::min(wide / 2, static_cast<double>(tree_chunk_bytes(shape)));
  const double chunks = std::max(1.0, wide / 2 / std::max(1.0, chunk));
  const double directions = (up ? 1 : 0) + (down ? 1 : 0);
  const double moved = ((up ? wide : 0) + (down ? own : 0)) / std::max(1.0, wide) * chunk;   // up and down, of one tree
  const double most = shape.ranks == 2 ? 1 : shape.ranks == 3 && directions == 2 ? 1.5 : 2;  // of the ranks' links
  return {.latencies = directions * levels + latencies_of(chunk) - 1,
          .messages = 4 * directions * (chunks - 1) + 3 * directions * levels,
          .bytes = most * moved * (chunks - 1),
          .touched = sums_of_chunk(shape) * chunk * (chunks - 1),
          .overlaps = true,
          .first_bytes = (shape.ranks == 2 ? 1 : 3) * moved * levels,
          .first_touched = (up ? 4 * levels + (shape.narrows ? 1.5 : 0) : 0) * chunk};
}

}  // namespace

constexpr AlgorithmInfo kDoubleTreeAllreduceInfo{Collective::kAllreduce, "double-tree", &no_obstacle, &double_tree_cost,
                                                 &double_tree_allreduce};
constexpr AlgorithmInfo kDoubleTreeReduceInfo{Collective::kReduce, "double-tree", &double_tree_reduce_obstacle,
                                              &double_tree_cost, &double_tree_reduce};
constexpr AlgorithmInfo kDoubleTreeBroadcastInfo{Collective::kBroadcast, "double-tree", &no_obstacle, &double_tree_cost,
                                                 &double_tree_broadcast};

}  // namespace aiacc::inter

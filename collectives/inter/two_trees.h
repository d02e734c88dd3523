// Two binary trees over the same ranks, of which nearly every inner node of one is a leaf of the other (Sanders, Speck, Träff,
// "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 2009). Each carries half of a
// payload, so that all links are busy in both directions, where in a single tree those of the leaves, half of all, are idle.
//
// Ranks have positions in a tree: its root 0, with one child, and above it all others as a binary tree in order: the lowest set
// bit of a position is its level, leaves are odd, and the left subtree of each node has the positions just below its own, the
// right one those just above. With 8 positions:
//
//     0 ─ 4 ─┬─ 2 ─┬─ 1
//            │     └─ 3
//            └─ 6 ─┬─ 5
//                  └─ 7
//
// In the second tree all ranks are shifted by one position, so leaves and inner nodes change places. The root's distance to
// the farthest leaf is ⌈log₂ n⌉.
#pragma once

#include <bit>

namespace aiacc::inter {

// Positions or ranks; -1: none.
struct TreeNode {
  int parent = -1;
  int left = -1;
  int right = -1;  // also the root's only child
  bool is_leaf() const noexcept { return left < 0 && right < 0; }
  bool operator==(const TreeNode&) const = default;
};

constexpr TreeNode node_at(int position, int size) noexcept {
  if (position == 0)
    return {.right = size > 1 ? static_cast<int>(std::bit_floor(static_cast<unsigned>(size - 1))) : -1};
  const int level = position & -position;
  const int above = (position ^ level) | (level << 1);
  TreeNode node{.parent = above < size ? above : position ^ level};
  if (level > 1) node.left = position - level / 2;
  int step = level / 2;
  while (step > 0 && position + step >= size) step /= 2;
  if (step > 0) node.right = position + step;
  return node;
}

class TwoTrees {
 public:
  static constexpr int kTrees = 2;
  // With one root of both trees, which is no node of the trees above it.
  static constexpr TwoTrees from(int root, int size) noexcept { return {root, size}; }
  // Roots are the first and the last rank, and both trees have the ranks in order, if the first root comes before its subtree
  // and the last one after it.
  static constexpr TwoTrees in_order(int size) noexcept { return {-1, size}; }

  constexpr int root(int tree) const noexcept { return rank_at(tree, 0); }
  constexpr int position_of(int tree, int rank) const noexcept {
    if (root_ < 0) return (rank + tree) % size_;
    const int distance = (rank - root_ + size_) % size_;
    return distance == 0 || tree == 0 ? distance : distance % (size_ - 1) + 1;
  }
  constexpr int rank_at(int tree, int position) const noexcept {
    if (root_ < 0) return (position - tree + size_) % size_;
    const int distance = position == 0 || tree == 0 ? position : (position + size_ - 3) % (size_ - 1) + 1;
    return (distance + root_) % size_;
  }
  // The ranks around a rank.
  constexpr TreeNode node_of(int tree, int rank) const noexcept {
    const TreeNode node = node_at(position_of(tree, rank), size_);
    const auto rank_of = [&](int position) { return position < 0 ? -1 : rank_at(tree, position); };
    return {rank_of(node.parent), rank_of(node.left), rank_of(node.right)};
  }

 private:
  constexpr TwoTrees(int root, int size) noexcept : root_(root), size_(size) {}
  int root_;
  int size_;
};

}  // namespace aiacc::inter

// A priority queue whose nodes are members of their owners: no allocation, and a node removes itself, also when it is destroyed.
// A pairing heap (Fredman, Sedgewick, Sleator and Tarjan, Algorithmica 1986): adding takes O(1), removing any node O(log n)
// amortised.
#pragma once

#include <utility>

namespace aiacc {

template <class T>
class IntrusiveHeap;

// T derives from HeapNode<T>. Its heap_key() does not change while it is in a heap.
template <class T>
class HeapNode {
 public:
  HeapNode() = default;
  HeapNode(const HeapNode&) = delete;
  HeapNode& operator=(const HeapNode&) = delete;
  ~HeapNode() { leave_heap(); }

  bool in_heap() const noexcept { return before_ != nullptr; }
  void leave_heap() noexcept {
    if (!in_heap()) return;
    // Its children take its place: none of their keys is less than that of its parent.
    HeapNode* const tree = merged(std::exchange(first_, nullptr));
    HeapNode* const follower = tree != nullptr ? tree : after_;
    (before_->first_ == this ? before_->first_ : before_->after_) = follower;
    if (after_ != nullptr) after_->before_ = tree != nullptr ? tree : before_;
    if (tree != nullptr) {
      tree->before_ = before_;
      tree->after_ = after_;
    }
    before_ = after_ = nullptr;
  }

 private:
  friend class IntrusiveHeap<T>;

  bool precedes(const HeapNode& other) const noexcept {
    return static_cast<const T&>(*this).heap_key() < static_cast<const T&>(other).heap_key();
  }
  // One of two trees becomes the first child of the other, which is returned.
  static HeapNode* joined(HeapNode* one, HeapNode* other) noexcept {
    if (other->precedes(*one)) std::swap(one, other);
    other->after_ = one->first_;
    if (other->after_ != nullptr) other->after_->before_ = other;
    other->before_ = one;
    one->first_ = other;
    return one;
  }
  // Makes one tree of siblings, in two passes: pairs from the left, then all of these from the right.
  static HeapNode* merged(HeapNode* sibling) noexcept {
    HeapNode* pairs = nullptr;  // the last one first, linked by after_
    while (sibling != nullptr) {
      HeapNode* tree = sibling;
      HeapNode* const second = sibling->after_;
      sibling = second == nullptr ? nullptr : second->after_;
      if (second != nullptr) tree = joined(tree, second);
      tree->after_ = std::exchange(pairs, tree);
    }
    if (pairs == nullptr) return nullptr;
    HeapNode* all = std::exchange(pairs, pairs->after_);
    while (pairs != nullptr) {
      HeapNode* const next = pairs->after_;
      all = joined(all, pairs);
      pairs = next;
    }
    return all;
  }

  HeapNode* first_ = nullptr;   // child
  HeapNode* after_ = nullptr;   // sibling
  HeapNode* before_ = nullptr;  // sibling, or the parent of a first child
};

// The heap owns nothing.
template <class T>
class IntrusiveHeap {
 public:
  IntrusiveHeap() = default;
  ~IntrusiveHeap() {
    while (!empty()) top().leave_heap();
  }
  IntrusiveHeap(const IntrusiveHeap&) = delete;
  IntrusiveHeap& operator=(const IntrusiveHeap&) = delete;

  bool empty() const noexcept { return root_.first_ == nullptr; }
  // The one with the least key.
  T& top() const noexcept { return static_cast<T&>(*root_.first_); }
  void add(T& item) noexcept {
    HeapNode<T>* node = &static_cast<HeapNode<T>&>(item);
    if (!empty()) node = HeapNode<T>::joined(root_.first_, node);
    node->after_ = nullptr;
    node->before_ = &root_;
    root_.first_ = node;
  }

 private:
  HeapNode<T> root_;  // parent of the tree, with no key of its own
};

}  // namespace aiacc

// A doubly linked list whose nodes are members of their owners: no allocation, O(1) removal by the node itself.
// A node removes itself when destroyed, so a destroyed coroutine frame leaves no dangling entry.
#pragma once

namespace aiacc {

template <class T>
class IntrusiveList;

template <class T>
class ListNode {
 public:
  ListNode() = default;
  ListNode(const ListNode&) = delete;
  ListNode& operator=(const ListNode&) = delete;
  ~ListNode() { unlink(); }

  bool linked() const noexcept { return next_ != nullptr; }
  void unlink() noexcept {
    if (next_ == nullptr) return;
    next_->prev_ = prev_;
    prev_->next_ = next_;
    next_ = prev_ = nullptr;
  }

 private:
  friend class IntrusiveList<T>;
  ListNode* next_ = nullptr;
  ListNode* prev_ = nullptr;
};

// T derives from ListNode<T>. The list owns nothing.
template <class T>
class IntrusiveList {
 public:
  IntrusiveList() { head_.next_ = head_.prev_ = &head_; }
  ~IntrusiveList() {
    while (!empty()) head_.next_->unlink();
  }
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;

  bool empty() const noexcept { return head_.next_ == &head_; }
  T& front() noexcept { return *static_cast<T*>(head_.next_); }
  const T& front() const noexcept { return *static_cast<const T*>(head_.next_); }
  // The one after `item`, which is in the list; null if it is the last.
  T* after(T& item) noexcept {
    ListNode<T>* next = static_cast<ListNode<T>&>(item).next_;
    return next == &head_ ? nullptr : static_cast<T*>(next);
  }
  T* first() noexcept { return empty() ? nullptr : &front(); }
  void push_back(T& item) noexcept {
    ListNode<T>& node = item;
    node.prev_ = head_.prev_;
    node.next_ = &head_;
    head_.prev_->next_ = &node;
    head_.prev_ = &node;
  }
  void push_front(T& item) noexcept {
    ListNode<T>& node = item;
    node.prev_ = &head_;
    node.next_ = head_.next_;
    head_.next_->prev_ = &node;
    head_.next_ = &node;
  }
  // `next` is in the list.
  void insert_before(T& next, T& item) noexcept {
    ListNode<T>& node = item;
    ListNode<T>& at = next;
    node.prev_ = at.prev_;
    node.next_ = &at;
    at.prev_->next_ = &node;
    at.prev_ = &node;
  }
  T* pop_front() noexcept {
    if (empty()) return nullptr;
    ListNode<T>* node = head_.next_;
    node->unlink();
    return static_cast<T*>(node);
  }
  // The first item for which fn(const T&) is true; null if there is none.
  template <class Fn>
  T* find(Fn&& fn) noexcept {
    for (ListNode<T>* node = head_.next_; node != &head_; node = node->next_) {
      if (fn(static_cast<const T&>(*static_cast<T*>(node)))) return static_cast<T*>(node);
    }
    return nullptr;
  }
  // The first of those at the end for all of which fn(const T&) is true; null if it is false for the last.
  template <class Fn>
  T* first_of_last(Fn&& fn) noexcept {
    T* found = nullptr;
    for (ListNode<T>* node = head_.prev_; node != &head_; node = node->prev_) {
      if (!fn(static_cast<const T&>(*static_cast<T*>(node)))) break;
      found = static_cast<T*>(node);
    }
    return found;
  }
  // Calls fn(T&) for each item; fn may unlink its argument and no other item.
  template <class Fn>
  void for_each(Fn&& fn) {
    for (ListNode<T>* node = head_.next_; node != &head_;) {
      ListNode<T>* next = node->next_;
      fn(*static_cast<T*>(node));
      node = next;
    }
  }

 private:
  ListNode<T> head_;
};

}  // namespace aiacc

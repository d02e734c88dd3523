// MatchIndex: finds posted receives, unexpected messages and operations by a hash of their matching key, independent of
// how many there are. A hash table whose nodes live inside their owners, so that adding and removing take no memory and
// cannot fail; it doubles as it fills, and an empty one gives its memory back. Adding, finding and removing cost O(1),
// amortized.
//
// Among items with equal hashes, the one that was added first is found first, so that messages with the same key are
// matched in order. Buckets are queues: also items that all have one hash are added and removed in O(1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>

namespace aiacc {

template <class T, int kWhich>
class MatchIndex;

// T derives from a MatchNode<T, kWhich> for each index that it can be in. A node leaves its index when it is destroyed.
template <class T, int kWhich = 0>
class MatchNode {
 public:
  MatchNode() = default;
  MatchNode(const MatchNode&) = delete;
  MatchNode& operator=(const MatchNode&) = delete;
  ~MatchNode() { unindex(); }

  bool indexed() const noexcept { return index_ != nullptr; }
  void unindex() noexcept {
    if (index_ != nullptr) index_->remove(*this);
  }

 private:
  friend class MatchIndex<T, kWhich>;
  MatchIndex<T, kWhich>* index_ = nullptr;
  MatchNode* next_ = nullptr;  // in its bucket
  MatchNode* prev_ = nullptr;
  std::uint64_t hash_ = 0;
};

template <class T, int kWhich = 0>
class MatchIndex {
 public:
  using Node = MatchNode<T, kWhich>;

  MatchIndex() = default;
  MatchIndex(const MatchIndex&) = delete;
  MatchIndex& operator=(const MatchIndex&) = delete;
  ~MatchIndex() {
    for (std::size_t i = 0; i < buckets_; ++i) {
      while (table_[i].first != nullptr) detach(*table_[i].first);
    }
    drop_table();
  }

  std::size_t size() const noexcept { return count_; }

  // `hash` must be well mixed (Hash64), because its low bits choose the bucket.
  void add(T& item, std::uint64_t hash) noexcept {
    if (count_ >= buckets_) grow();
    Node& node = item;
    node.hash_ = hash;
    node.index_ = this;
    append(table_, buckets_, node);
    ++count_;
  }

  // The first item with this hash for which fits(item) is true, or null.
  template <class Fits>
  T* find(std::uint64_t hash, Fits&& fits) const noexcept {
    for (Node* node = table_[hash & (buckets_ - 1)].first; node != nullptr; node = node->next_) {
      if (node->hash_ == hash && fits(static_cast<T&>(*node))) return static_cast<T*>(node);
    }
    return nullptr;
  }

 private:
  friend class MatchNode<T, kWhich>;
  struct Bucket {
    Node* first = nullptr;
    Node* last = nullptr;
  };
  static constexpr std::size_t kFirstBuckets = 16;
  static constexpr std::size_t kKeptBuckets = 1024;

  void remove(Node& node) noexcept {
    detach(node);
    if (--count_ == 0 && buckets_ > kKeptBuckets) {
      drop_table();
      table_ = first_.data();
      buckets_ = kFirstBuckets;
      first_.fill({});
    }
  }

  void detach(Node& node) noexcept {
    Bucket& bucket = table_[node.hash_ & (buckets_ - 1)];
    (node.prev_ != nullptr ? node.prev_->next_ : bucket.first) = node.next_;
    (node.next_ != nullptr ? node.next_->prev_ : bucket.last) = node.prev_;
    node.index_ = nullptr;
  }

  static void append(Bucket* table, std::size_t buckets, Node& node) noexcept {
    Bucket& bucket = table[node.hash_ & (buckets - 1)];
    node.next_ = nullptr;
    node.prev_ = bucket.last;
    (bucket.last != nullptr ? bucket.last->next_ : bucket.first) = &node;
    bucket.last = &node;
  }

  // If there is no memory for a larger table, the chains grow instead.
  void grow() noexcept {
    const std::size_t doubled = 2 * buckets_;
    Bucket* larger = new (std::nothrow) Bucket[doubled]();
    if (larger == nullptr) return;
    for (std::size_t i = 0; i < buckets_; ++i) {
      for (Node* node = table_[i].first; node != nullptr;) {
        Node* next = node->next_;
        append(larger, doubled, *node);
        node = next;
      }
    }
    drop_table();
    table_ = larger;
    buckets_ = doubled;
  }

  void drop_table() noexcept {
    if (table_ != first_.data()) delete[] table_;
  }

  std::array<Bucket, kFirstBuckets> first_{};
  Bucket* table_ = first_.data();
  std::size_t buckets_ = kFirstBuckets;
  std::size_t count_ = 0;
};

}  // namespace aiacc

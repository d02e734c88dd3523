// TagQueues: receives or messages that wait, a queue for each tag. A hash table with one entry for each tag in use; its nodes
// live inside the items, so that adding and removing take no memory and cannot fail. Adding, finding and taking the first of a tag
// cost O(1), amortized, however many wait with this tag or with others.
//
// A queue is a ring that is entered at its last item, which is also the one in the table: so an item needs two links.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace aiacc {

template <class T>
class TagQueues;

template <class T>
class TagNode {
 public:
  explicit TagNode(std::uint32_t tag = 0) noexcept : tag_(tag) {}
  TagNode(const TagNode&) = delete;
  TagNode& operator=(const TagNode&) = delete;

  std::uint32_t tag() const noexcept { return tag_; }
  bool queued() const noexcept { return next_ != nullptr; }

 protected:
  ~TagNode() = default;

 private:
  friend class TagQueues<T>;
  T* next_ = nullptr;   // of its tag; of the last: the first
  T* chain_ = nullptr;  // of a last one: another tag's last in the same bucket
  std::uint32_t tag_;
};

// T derives from TagNode<T>. The queues own nothing; an item leaves its queue before it is destroyed.
template <class T>
class TagQueues {
 public:
  TagQueues() = default;
  TagQueues(const TagQueues&) = delete;
  TagQueues& operator=(const TagQueues&) = delete;
  ~TagQueues() { drop_table(); }

  bool empty() const noexcept { return tags_ == 0; }

  void push_back(T& item, std::uint32_t tag) noexcept {
    node(item).tag_ = tag;
    push_back(item);
  }
  void push_back(T& item) noexcept {
    if (tags_ >= buckets_) grow();
    T** const link = find(node(item).tag_);
    T* const last = *link;
    if (last == nullptr) {
      ++tags_;
      node(item).next_ = &item;
    } else {
      node(item).next_ = node(*last).next_;
      node(*last).next_ = &item;
    }
    node(item).chain_ = last == nullptr ? nullptr : node(*last).chain_;
    *link = &item;
  }

  // The first of a tag, or null.
  T* first(std::uint32_t tag) noexcept {
    if (tags_ == 0) return nullptr;
    T* const last = *find(tag);
    return last == nullptr ? nullptr : node(*last).next_;
  }
  T* pop_front(std::uint32_t tag) noexcept {
    if (tags_ == 0) return nullptr;
    T** const link = find(tag);
    if (*link == nullptr) return nullptr;
    T* const first = node(**link).next_;
    take_after(link, *link);
    return first;
  }
  // The first of some tag.
  T* pop_any() noexcept {
    if (tags_ == 0) return nullptr;
    std::size_t i = 0;
    while (table_[i] == nullptr) ++i;
    return pop_front(node(*table_[i]).tag_);
  }
  // Costs O(1) for the first of its tag, and otherwise a step for each that is before it.
  void remove(T& item) noexcept {
    T** const link = find(node(item).tag_);
    T* before = *link;
    while (node(*before).next_ != &item) before = node(*before).next_;
    take_after(link, before);
  }

 private:
  static constexpr std::size_t kFirstBuckets = 16;
  static constexpr std::size_t kKeptBuckets = 8192;

  static TagNode<T>& node(T& item) noexcept { return item; }
  // Tags are often consecutive, or multiples of a power of two.
  static std::size_t hash(std::uint32_t tag) noexcept { return tag ^ tag >> 16; }

  // The link to the last of this tag, or the link where it would be.
  T** find(std::uint32_t tag) noexcept {
    T** link = &table_[hash(tag) & (buckets_ - 1)];
    while (*link != nullptr && node(**link).tag_ != tag) link = &node(**link).chain_;
    return link;
  }

  void take_after(T** link, T* before) noexcept {
    T* const taken = node(*before).next_;
    T* const last = *link;
    if (taken == before) {
      *link = node(*taken).chain_;
      --tags_;
    } else {
      node(*before).next_ = node(*taken).next_;
      if (taken == last) {
        node(*before).chain_ = node(*taken).chain_;
        *link = before;
      }
    }
    node(*taken).next_ = node(*taken).chain_ = nullptr;
    if (tags_ == 0 && buckets_ > kKeptBuckets) {
      drop_table();
      table_ = first_.data();
      buckets_ = kFirstBuckets;
      first_.fill(nullptr);
    }
  }

  // If there is no memory for a larger table, the chains grow instead.
  [[gnu::noinline]] void grow() noexcept {
    const std::size_t doubled = 2 * buckets_;
    T** const larger = new (std::nothrow) T*[doubled]();
    if (larger == nullptr) return;
    for (std::size_t i = 0; i < buckets_; ++i) {
      for (T* last = table_[i]; last != nullptr;) {
        T*& link = larger[hash(node(*last).tag_) & (doubled - 1)];
        T* const other = std::exchange(node(*last).chain_, link);
        link = last;
        last = other;
      }
    }
    drop_table();
    table_ = larger;
    buckets_ = doubled;
  }

  void drop_table() noexcept {
    if (table_ != first_.data()) delete[] table_;
  }

  std::array<T*, kFirstBuckets> first_{};
  T** table_ = first_.data();
  std::size_t buckets_ = kFirstBuckets;
  std::size_t tags_ = 0;  // in use
};

}  // namespace aiacc

// PairSequences: numbers for messages to and from ranks of other hosts. A send and the recv that takes it have the same
// number: both ends count their calls with that peer and tag. Members that take no part know nothing of it.
//
// A hash table with linear probing: one look into memory for each call, however many tags are in use.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "collectives/plain_call.h"

namespace aiacc {

class PairSequences {
 public:
  // The number of this send or recv. Called once for each call, in call order.
  std::uint64_t next(const PlainCall& call) {
    if (2 * (used_ + 1) > table_.size()) grow();
    const std::uint64_t key = key_of(call.kind == Collective::kSend, call.root, call.tag);
    Count& its = find(table_, key);
    if (its.count == 0) ++used_;
    its.key = key;
    return ++its.count;
  }
  // The number of the next message from `rank` for which no recv is posted.
  std::uint64_t next_from(int rank, std::uint32_t tag) const {
    if (table_.empty()) return 1;
    return find(const_cast<std::vector<Count>&>(table_), key_of(false, rank, tag)).count + 1;
  }
  // Calls `fn(sends, rank, tag, count)` for each pair and tag that had a message.
  template <class Fn>
  void for_each(Fn&& fn) const {
    for (const Count& each : table_) {
      if (each.count == 0) continue;
      fn(each.key >> 63 != 0, static_cast<int>(each.key >> 32 & 0x7fffffff), static_cast<std::uint32_t>(each.key),
         each.count);
    }
  }
  std::size_t used() const noexcept { return used_; }
  // The rank at which a recv from any rank starts to search, for fairness.
  int first_looked_at() const noexcept { return first_; }
  void took_from(int rank) noexcept { first_ = rank + 1; }

 private:
  struct Count {
    std::uint64_t key = 0;
    std::uint64_t count = 0;  // 0: this place is free
  };
  static std::uint64_t key_of(bool sends, int rank, std::uint32_t tag) noexcept {
    return std::uint64_t{sends} << 63 | static_cast<std::uint64_t>(rank) << 32 | tag;
  }
  // The place of the key, or the free one where it would be. The size is a power of two, and less than all is in use.
  static Count& find(std::vector<Count>& table, std::uint64_t key) noexcept {
    std::size_t at = Hash64::mix(key) & (table.size() - 1);
    while (table[at].count != 0 && table[at].key != key) at = (at + 1) & (table.size() - 1);
    return table[at];
  }
  void grow() {
    std::vector<Count> larger(table_.empty() ? 16 : 2 * table_.size());
    for (const Count& each : table_) {
      if (each.count != 0) find(larger, each.key) = each;
    }
    table_ = std::move(larger);
  }

  std::vector<Count> table_;
  std::size_t used_ = 0;
  int first_ = 0;
};

}  // namespace aiacc

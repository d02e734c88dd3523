// PairSequences: numbers for messages to and from ranks of other hosts. A send and the recv that takes it have the same
// number: both ends count their calls with that peer and tag. Members that take no part know nothing of it.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "collectives/operation.h"

namespace aiacc {

class PairSequences {
 public:
  // The number of this send or recv. Called once for each call, in call order.
  std::uint64_t next(const Call& call) { return ++counts_[{call.kind, call.root, call.tag}]; }
  // The number of the next message from `rank` for which no recv is posted.
  std::uint64_t next_from(int rank, std::uint32_t tag) const {
    const auto found = counts_.find({Collective::kRecv, rank, tag});
    return found == counts_.end() ? 1 : found->second + 1;
  }
  // The rank at which a recv from any rank starts to search, for fairness.
  int first_looked_at() const noexcept { return first_; }
  void took_from(int rank) noexcept { first_ = rank + 1; }

 private:
  std::map<std::tuple<Collective, int, std::uint32_t>, std::uint64_t> counts_;
  int first_ = 0;
};

}  // namespace aiacc

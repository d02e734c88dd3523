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
  // Of this send or recv; asked once, in the order of the calls.
  std::uint64_t next(const Call& call) { return ++counts_[{call.kind, call.root, call.tag}]; }

 private:
  std::map<std::tuple<Collective, int, std::uint32_t>, std::uint64_t> counts_;
};

}  // namespace aiacc

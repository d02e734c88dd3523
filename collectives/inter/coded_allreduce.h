// Allreduce with encoded messages (base/data/codec.h), in two exchanges: each rank sends shard p of its elements to rank p, which
// adds the n shards in fp32, and sends the sum to all.
//
//   2(n−1)α + 2(n−1)/n·S'β, S' the bytes of all elements encoded
//
// An element is rounded twice, before the sum and after it, so the error does not depend on n. A ring would round partial sums
// n−1 times. The rank that has made a sum decodes it like the others, so all get the same bits.
#pragma once

#include "collectives/operation.h"

namespace aiacc::inter {

// Shorter messages than this would not leave earlier in half of their bytes: the payload travels as it is, in log₂ n messages.
inline constexpr std::size_t kLeastCodedShard = 2 << 10;

// Whether the call has a codec, and its payload is long enough for it.
bool fits_coded_allreduce(const Operation& op) noexcept;
Task<void> coded_allreduce(Operation& op);

}  // namespace aiacc::inter

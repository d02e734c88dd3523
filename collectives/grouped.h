// Grouped allreduce: reduces a list of tensors. Consecutive small tensors are packed: copied side by side into scratch
// memory, reduced there as one, and copied out. A tensor that fills a pack by itself is reduced in its own memory.
//
// A pack has kPackBytes, so that it is still in the cache when it is reduced; as many packs are in progress as the
// algorithm below allows. Packs are the same on every rank, because all lengths are part of the fingerprint.
#pragma once

#include "collectives/operation.h"

namespace aiacc {

inline constexpr std::size_t kPackBytes = 1 << 20;
// A tensor of this size or more is reduced in its own memory: copying it in and out would cost more than a barrier.
inline constexpr std::size_t kAloneBytes = 256 << 10;

// How packs are reduced.
class PackReducer {
 public:
  virtual Task<void> allreduce(Operation& pack) = 0;

 protected:
  ~PackReducer() = default;
};

// `scratch` has a buffer of kPackBytes for each pack that may be in progress at once. `exchange` is that of the whole
// operation, or null.
Task<void> grouped_allreduce(Operation& op, PackReducer& reducer, std::span<const Buffer> scratch, Exchange* exchange);

}  // namespace aiacc

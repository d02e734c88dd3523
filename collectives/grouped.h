// Grouped allreduce: tensor after tensor, where small ones that follow each other are packed into one: copied side by side into
// scratch memory, reduced there as one, and copied out. A tensor that fills a pack by itself is reduced where it is.
//
// Packs are of kPackBytes, so that what was packed is still in the cache when it is reduced, and as many are under way as the
// algorithm below can have. They are the same on every rank, since all lengths are part of the fingerprint.
#pragma once

#include "collectives/operation.h"

namespace aiacc {

inline constexpr std::size_t kPackBytes = 1 << 20;
// From here on a tensor is reduced where it is: copying it in and out would cost more than a meeting.
inline constexpr std::size_t kAloneBytes = 256 << 10;

// How packs are reduced.
class PackReducer {
 public:
  virtual Task<void> allreduce(Operation& pack) = 0;

 protected:
  ~PackReducer() = default;
};

// `scratch` is one for each pack that may be under way at once, of kPackBytes each. `exchange` is the whole's, or null.
Task<void> grouped_allreduce(Operation& op, PackReducer& reducer, std::span<const Buffer> scratch, Exchange* exchange);

}  // namespace aiacc

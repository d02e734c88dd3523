#include "collectives/hier/barrier.h"

namespace aiacc::hier {

Task<void> barrier(HierCall& call) {
  Stop& stop = call.op.stop;
  const Buffer nothing;
  const std::span<const Extent> no_blocks;
  co_await call.on_host(call.op.call, nothing, nothing, stop);
  if (call.is_leader()) co_await call.between_same_local_ranks(call.op.call, nothing, nothing, no_blocks, 0, stop);
  co_await call.on_host(call.op.call, nothing, nothing, stop);
}

}  // namespace aiacc::hier

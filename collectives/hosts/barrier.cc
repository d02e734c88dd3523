#include "collectives/hosts/barrier.h"

namespace aiacc::hosts {

Task<void> barrier(HostsCall& call) {
  Stop& stop = call.op.stop;
  const Buffer nothing;
  const std::span<const Extent> no_blocks;
  co_await call.on_host(call.op.call, nothing, nothing, stop);
  if (call.is_leader()) co_await call.between_places(call.op.call, nothing, nothing, no_blocks, 0, stop);
  co_await call.on_host(call.op.call, nothing, nothing, stop);
}

}  // namespace aiacc::hosts

#include "collectives/hosts/broadcast.h"

namespace aiacc::hosts {

Task<void> broadcast(HostsCall& call) {
  Operation& op = call.op;
  const int rank = op.team.rank;
  const int representative = call.representative(call.host, op.call.root);
  // Callers may give the buffer as either.
  Buffer buffer = op.recv.bytes > 0 ? op.recv : op.send;
  if (rank == op.call.root && op.send.bytes > 0) buffer = op.send;
  if (rank == representative) co_await call.between_representatives(op.call, buffer, buffer, 0, op.stop);
  Call here = op.call;
  here.root = representative;
  const Buffer nothing;
  co_await call.on_host(here, rank == representative ? buffer : nothing, rank == representative ? nothing : buffer,
                        op.stop);
}

}  // namespace aiacc::hosts

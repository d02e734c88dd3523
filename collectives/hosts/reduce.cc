#include "collectives/hosts/reduce.h"

#include "collectives/net/net_call.h"

namespace aiacc::hosts {

Task<void> reduce(HostsCall& call) {
  Operation& op = call.op;
  const int rank = op.team.rank;
  const int representative = call.representative(call.host, op.call.root);
  net::Scratch scratch(op, rank == representative && rank != op.call.root && !call.alone() ? op.call.bytes() : 0);
  Buffer partial;
  if (rank == representative) partial = rank == op.call.root ? op.recv : scratch.buffer();

  Call here = op.call;
  here.root = representative;
  here.reduction = call.reduction_on_host();
  co_await call.on_host(here, op.send, partial, op.stop);
  if (rank != representative) co_return;
  Call between = op.call;
  between.reduction = call.reduction_between();
  const Buffer result = rank == op.call.root ? op.recv : Buffer{};
  co_await call.between_representatives(between, call.alone() ? op.send : partial, result, op.stop);
}

}  // namespace aiacc::hosts

#include "collectives/hier/exchange_blocks.h"

#include <vector>

#include "base/task/scope.h"

namespace aiacc::hier {
namespace {

// The blocks of this host's ranks.
std::vector<Extent> here(const HierCall& call, bool received) {
  std::vector<Extent> blocks;
  for (const int rank : call.view.ranks_on_host(call.host)) {
    blocks.push_back(received ? call.op.call.recv_block(rank) : call.op.call.block(rank));
  }
  return blocks;
}

// The phase is an uneven call, because the blocks of a host's ranks need not be contiguous.
Task<void> exchange_here(HierCall& call, Stop& stop) {
  const Call& made = call.op.call;
  const bool all = made.kind == Collective::kAlltoall;
  if (call.alone() || (!all && call.view.host_of(made.root) != call.host)) co_return;
  const bool knows = all || call.op.team.rank == made.root;
  const std::vector<Extent> blocks = knows ? here(call, false) : std::vector<Extent>();
  const std::vector<Extent> recv_blocks = all ? here(call, true) : std::vector<Extent>();
  Call phase = made;
  phase.uneven = true;
  phase.blocks = blocks;
  phase.recv_blocks = recv_blocks;
  co_await call.on_host(phase, call.op.send, call.op.recv, stop);
}

}  // namespace

Task<void> exchange_blocks(HierCall& call) {
  Operation& op = call.op;
  if (!op.call.uneven && op.call.count == 0) co_return;
  Scope scope(op.team.loop, op.stop);
  scope.spawn(call.between_all(op.call, op.send, op.recv, scope.stop()));
  scope.spawn(exchange_here(call, scope.stop()));
  co_await scope.join();
}

}  // namespace aiacc::hier

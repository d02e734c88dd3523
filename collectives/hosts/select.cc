#include "collectives/hosts/select.h"

#include "collectives/host/host_team.h"
#include "collectives/hosts/allgather.h"
#include "collectives/hosts/allreduce.h"
#include "collectives/hosts/barrier.h"
#include "collectives/hosts/broadcast.h"
#include "collectives/hosts/exchange_blocks.h"
#include "collectives/hosts/reduce.h"
#include "collectives/hosts/reduce_scatter.h"
#include "collectives/net/select.h"

namespace aiacc::hosts {
namespace {

Task<void> run_chosen(HostsCall& call) {
  switch (call.op.call.kind) {
    case Collective::kAllreduce: return allreduce(call);
    case Collective::kReduce: return reduce(call);
    case Collective::kBroadcast: return broadcast(call);
    case Collective::kAllgather: return allgather(call);
    case Collective::kReduceScatter: return reduce_scatter(call);
    case Collective::kBarrier: return barrier(call);
    case Collective::kAlltoall:
    case Collective::kGather:
    case Collective::kScatter: return exchange_blocks(call);
    default: break;
  }
  throw Error(Code::kInternal, "a message is no collective");
}

// The turn is held for the whole: phases of two operations on one host would meet in another order on each member.
Task<void> run_in_turn(HostsCall& call) {
  HostTeam& team = *call.op.team.host;
  try {
    co_await host::TurnQueue::Await(team.turns(), team.loop(), call.op.stop);
    const host::TurnQueue::Holder holder(team.turns());
    if (team.failed()) throw Error(Code::kAborted, "an earlier operation of this group failed");
    co_await run_chosen(call);
  } catch (...) {
    team.fail();
    throw;
  }
}

}  // namespace

std::size_t shards_of(const View& view, std::size_t bytes) noexcept {
  return bytes <= kLeadersBytes ? 1 : static_cast<std::size_t>(view.fewest_on_a_host());
}

Task<void> run(Operation& op) {
  const View& view = *op.team.view;
  if (view.most_on_a_host() == 1) {
    co_await net::run(op);
    co_return;
  }
  // Registered from the beginning to the end, also by members that send nothing: whoever asks finds their call here.
  Exchange exchange(*op.team.mailbox, op.team.view, op.team.rank, op.sequence, op.call.fingerprint(),
                    CallNote(op.call.summary()));
  const std::span<const int> mates = view.ranks_on_host_of(op.team.rank);
  const auto place = static_cast<std::size_t>(view.place_of(op.team.rank));
  if (mates.size() > 1) exchange.set_mate(mates[(place + 1) % mates.size()]);
  HostsCall call(op, exchange);
  if (call.alone()) {
    co_await run_chosen(call);
  } else {
    co_await run_in_turn(call);
  }
}

}  // namespace aiacc::hosts

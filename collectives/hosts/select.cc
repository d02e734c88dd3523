#include "collectives/hosts/select.h"

#include "collectives/grouped.h"
#include "collectives/host/host_team.h"
#include "collectives/hosts/allgather.h"
#include "collectives/hosts/allreduce.h"
#include "collectives/hosts/barrier.h"
#include "collectives/hosts/broadcast.h"
#include "collectives/hosts/exchange_blocks.h"
#include "collectives/hosts/ordered_reduce.h"
#include "collectives/hosts/reduce.h"
#include "collectives/hosts/reduce_scatter.h"
#include "collectives/net/net_call.h"
#include "collectives/net/select.h"

namespace aiacc::hosts {
namespace {

Task<void> run_chosen(HostsCall& call);

// One pack after another: each takes both the host's and the network's part.
class Packs final : public PackReducer {
 public:
  explicit Packs(const HostsCall& whole) noexcept : whole_(whole) {}
  Task<void> allreduce(Operation& pack) override {
    HostsCall call(pack, whole_);
    co_await run_chosen(call);
  }

 private:
  const HostsCall& whole_;
};

// Memory for packs, which has bytes if the tensors have.
class PackScratch {
 public:
  PackScratch(const Operation& op, std::size_t bytes)
      : like_{op.team, op.call, op.sequence, op.stop, first_of(op), {}}, scratch_(like_, bytes) {}
  Buffer buffer() noexcept { return scratch_.buffer(); }

 private:
  static Buffer first_of(const Operation& op) noexcept {
    for (const Tensor& tensor : op.call.tensors) {
      if (tensor.send.bytes > 0) return tensor.send;
    }
    return {};
  }
  Operation like_;
  net::Scratch scratch_;
};

Task<void> run_grouped(HostsCall& call) {
  Packs packs(call);
  PackScratch private_scratch(call.op, call.alone() ? kPackBytes : 0);
  const Buffer scratch = call.alone() ? private_scratch.buffer() : call.op.team.host->pack_memory(kPackBytes);
  co_await grouped_allreduce(call.op, packs, {&scratch, 1}, &call.exchange());
}

Task<void> run_chosen(HostsCall& call) {
  switch (call.op.call.kind) {
    case Collective::kAllreduce: return needs_ordered_reduce(call) ? ordered_reduce(call) : allreduce(call);
    case Collective::kReduce: return needs_ordered_reduce(call) ? ordered_reduce(call) : reduce(call);
    case Collective::kBroadcast: return broadcast(call);
    case Collective::kAllgather: return allgather(call);
    case Collective::kReduceScatter: return needs_ordered_reduce(call) ? ordered_reduce(call) : reduce_scatter(call);
    case Collective::kBarrier: return barrier(call);
    case Collective::kAlltoall:
    case Collective::kGather:
    case Collective::kScatter: return exchange_blocks(call);
    case Collective::kGroupedAllreduce: return run_grouped(call);
    default: break;
  }
  throw Error(Code::kInternal, "a message is no collective");
}

// Packs on ranks that are alone on their hosts: while one is reduced, the next is packed.
class PacksBetween final : public PackReducer {
 public:
  Task<void> allreduce(Operation& pack) override { return net::run(pack); }
};

Task<void> run_grouped_between(Operation& op, Exchange& exchange) {
  PacksBetween packs;
  PackScratch first(op, kPackBytes), second(op, kPackBytes);
  const Buffer scratch[] = {first.buffer(), second.buffer()};
  co_await grouped_allreduce(op, packs, scratch, &exchange);
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
  // Registered from the beginning to the end, also by members that send nothing: whoever asks finds their call here.
  Exchange exchange(*op.team.mailbox, op.team.view, op.team.rank, op.sequence, op.call.fingerprint(),
                    CallNote(op.call.summary()));
  exchange.set_urgent(op.urgent);
  if (view.most_on_a_host() == 1 && op.call.kind == Collective::kGroupedAllreduce) {
    co_await run_grouped_between(op, exchange);
    co_return;
  }
  if (view.most_on_a_host() == 1) {
    const PartOf part{.whole = op.call, .ranks = op.team.size(), .exchange = &exchange};
    Operation phase{op.team, op.call, op.sequence, op.stop, op.send, op.recv, &part};
    co_await net::run(phase);
    co_return;
  }
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

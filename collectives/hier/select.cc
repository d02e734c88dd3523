#include "collectives/hier/select.h"

#include <utility>

#include "collectives/grouped.h"
#include "collectives/hier/allgather.h"
#include "collectives/hier/allreduce.h"
#include "collectives/hier/barrier.h"
#include "collectives/hier/broadcast.h"
#include "collectives/hier/combine_blocks.h"
#include "collectives/hier/exchange_blocks.h"
#include "collectives/hier/local_team.h"
#include "collectives/hier/ordered_reduce.h"
#include "collectives/hier/reduce.h"
#include "collectives/hier/reduce_scatter.h"
#include "collectives/inter/algorithm_info.h"
#include "collectives/inter/inter_call.h"
#include "collectives/inter/select.h"
#include "collectives/inter/selector.h"

namespace aiacc::hier {
namespace {

Task<void> run_chosen(HierCall& call);

// Reduces packs one after another, because each of them runs phases on the host and phases between hosts.
class Packs final : public PackReducer {
 public:
  explicit Packs(const HierCall& whole) noexcept : whole_(whole) {}
  Task<void> allreduce(Operation& pack) override {
    HierCall call(pack, whole_);
    co_await run_chosen(call);
  }

 private:
  const HierCall& whole_;
};

// Private memory for packs. It has no bytes if the tensors have none (byte-free simulation).
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
  inter::Scratch scratch_;
};

Task<void> run_grouped(HierCall& call) {
  Packs packs(call);
  const Buffer memory = call.pack_memory(kPackBytes);
  PackScratch private_scratch(call.op, memory.bytes > 0 ? 0 : kPackBytes);
  const Buffer scratch = memory.bytes > 0 ? memory : private_scratch.buffer();
  co_await grouped_allreduce(call.op, packs, {&scratch, 1}, &call.exchange());
}

bool combines(const HierCall& call) noexcept {
  const Call& made = call.op.call;
  return !made.uneven &&
         made.bytes() <= longest_combined(made.kind, static_cast<std::size_t>(call.view.most_on_a_host()));
}

Task<void> run_chosen(HierCall& call) {
  switch (call.op.call.kind) {
    case Collective::kAllreduce: return needs_ordered_reduce(call) ? ordered_reduce(call) : allreduce(call);
    case Collective::kReduce: return needs_ordered_reduce(call) ? ordered_reduce(call) : reduce(call);
    case Collective::kBroadcast: return broadcast(call);
    case Collective::kAllgather: return allgather(call);
    case Collective::kReduceScatter: return needs_ordered_reduce(call) ? ordered_reduce(call) : reduce_scatter(call);
    case Collective::kBarrier: return barrier(call);
    case Collective::kAlltoall:
    case Collective::kGather:
    case Collective::kScatter: return combines(call) ? combine_blocks(call) : exchange_blocks(call);
    case Collective::kGroupedAllreduce: return run_grouped(call);
    default: break;
  }
  throw Error(Code::kInternal, "a message is no collective");
}

// Reduces packs where each rank is alone on its host: one pack is reduced while the next is packed.
class PacksBetween final : public PackReducer {
 public:
  Task<void> allreduce(Operation& pack) override { return inter::run(pack); }
};

Task<void> run_grouped_between(Operation& op, Exchange& exchange) {
  PacksBetween packs;
  PackScratch first(op, kPackBytes), second(op, kPackBytes);
  const Buffer scratch[] = {first.buffer(), second.buffer()};
  co_await grouped_allreduce(op, packs, scratch, &exchange);
}

// Holds the turn for the whole operation (local_team.h).
Task<void> run_in_turn(HierCall& call, LocalTeam& team, LocalPhases& local) {
  try {
    co_await TurnQueue::Await(local.turns(), call.op.team.loop, call.op.stop);
    const TurnQueue::Holder holder(local.turns());
    if (team.failed()) throw Error(Code::kAborted, "an earlier operation of this group failed");
    co_await run_chosen(call);
  } catch (...) {
    team.fail();
    throw;
  }
}

bool exchanges_blocks(Collective kind) noexcept {
  return kind == Collective::kAlltoall || kind == Collective::kGather || kind == Collective::kScatter;
}

void tell_choices(const Operation& op) {
  if (op.team.selector == nullptr || op.team.rank != 0) return;
  const bool by_shards = op.team.view->most_on_a_host() > 1 && op.call.reduction.ordered();  // hier/ordered_reduce.h
  if (by_shards) return;
  inter::Shape whole = inter::shape_of(op);
  whole.preferred = nullptr;  // what selection chooses by itself
  if (whole.kind == Collective::kGroupedAllreduce) {
    whole.kind = Collective::kAllreduce;
    whole.narrows = op.call.reduction.narrows();
  }
  const View& view = *op.team.view;
  const auto most = static_cast<std::size_t>(view.most_on_a_host());
  const bool alike = view.fewest_on_a_host() == view.most_on_a_host();
  op.team.selector->tell_choices(shape_between(whole, view.hosts(), most, alike));
}

}  // namespace

inter::Shape shape_between(const inter::Shape& whole, int hosts, std::size_t most, bool alike) noexcept {
  inter::Shape shape = whole;
  if (most == 1) return shape;
  shape.among_some = true;
  shape.takes_partials = std::exchange(shape.narrows, false);
  const bool exchanges = exchanges_blocks(shape.kind);
  shape.skips_host = exchanges && (shape.uneven || shape.bytes > longest_combined(shape.kind, most));
  if (shape.skips_host) return shape;
  shape.ranks = hosts;
  if (!exchanges) return shape;
  // A call with blocks of several lengths has the bytes of all.
  shape.uneven = !alike;
  shape.combined = alike ? blocks_of_hosts(shape.kind, most) : static_cast<std::size_t>(whole.ranks);
  shape.longest_of_combined = longest_combined(shape.kind, most);
  shape.bytes *= shape.combined;
  shape.wide_bytes = shape.bytes;
  return shape;
}

std::size_t shards_of(const View& view, std::size_t bytes) noexcept {
  return bytes <= kLeadersBytes ? 1 : static_cast<std::size_t>(view.fewest_on_a_host());
}

Task<void> run(Operation& op) {
  const View& view = *op.team.view;
  tell_choices(op);
  // The exchange is registered from beginning to end, also on members that send nothing, so that a straggler diagnosis finds
  // their call.
  Exchange exchange(*op.team.mailbox, op.team.view, op.team.rank, op.sequence, op.call.fingerprint(),
                    CallNote(op.call.summary()));
  exchange.set_traffic(op.traffic);
  if (inter::swaps_long(op.call)) exchange.swap_long();
  if (view.most_on_a_host() == 1 && op.call.kind == Collective::kGroupedAllreduce) {
    co_await run_grouped_between(op, exchange);
    co_return;
  }
  if (view.most_on_a_host() == 1) {
    const PartOf part{.whole = op.call, .ranks = op.team.size(), .exchange = &exchange};
    Operation phase{op.team, op.call, op.sequence, op.stop, op.send, op.recv, &part};
    co_await inter::run(phase);
    co_return;
  }
  const std::span<const int> local_peers = view.ranks_on_host_of(op.team.rank);
  const auto local_rank = static_cast<std::size_t>(view.local_rank_of(op.team.rank));
  if (local_peers.size() > 1) exchange.set_local_peer(local_peers[(local_rank + 1) % local_peers.size()]);
  LocalPhases* const local = local_peers.size() > 1 ? &op.team.local->phases_of(op.sequence) : nullptr;
  HierCall call(op, exchange, local);
  if (local == nullptr) {
    co_await run_chosen(call);
  } else {
    co_await run_in_turn(call, *op.team.local, *local);
  }
}

}  // namespace aiacc::hier

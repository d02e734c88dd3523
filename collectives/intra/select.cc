#include "collectives/intra/select.h"

#include "collectives/grouped.h"
#include "collectives/intra/allgather.h"
#include "collectives/intra/broadcast.h"
#include "collectives/intra/direct_reduce.h"
#include "collectives/intra/exchange_blocks.h"
#include "collectives/intra/one_shot.h"
#include "collectives/intra/reduce_extents.h"
#include "collectives/intra/reduce_scatter.h"
#include "collectives/intra/staged_reduce.h"

namespace aiacc::intra {
namespace {

// Normalizes a broadcast: the root's buffer becomes op.send, all others' op.recv. Callers may pass the buffer as
// either.
void normalize_buffers(Operation& op) {
  if (op.call.kind != Collective::kBroadcast) return;
  const Buffer buffer = op.recv.bytes > 0 ? op.recv : op.send;
  if (op.team.rank == op.call.root && op.send.bytes == 0) op.send = buffer;
  if (op.team.rank != op.call.root) {
    op.recv = buffer;
    op.send = {};
  }
}

bool exchanges_blocks(Collective kind) noexcept {
  return kind == Collective::kAlltoall || kind == Collective::kGather || kind == Collective::kScatter;
}

Task<void> run_after_arrival(Operation& op, std::uint64_t number) {
  const IntraCall call(op, number);
  if (op.call.count == 0) co_return;
  switch (op.call.kind) {
    case Collective::kAllreduce:
    case Collective::kReduce:
      if (can_reduce_directly(call)) {
        co_await direct_reduce(call);
      } else {
        co_await staged_reduce(call);
      }
      break;
    case Collective::kBroadcast: co_await broadcast(call); break;
    case Collective::kAllgather: co_await allgather(call); break;
    case Collective::kReduceScatter: co_await reduce_scatter(call); break;
    default: throw Error(Code::kInternal, "a collective that meets on this host has no algorithm");
  }
}

// Reduces to the root, which gets partial sums in the accumulate type.
Task<void> reduce_partially(Operation& op) {
  std::vector<Extents> owners(static_cast<std::size_t>(op.team.host->member_of(op.call.root)) + 1);
  owners.back().add({0, op.call.count});
  co_await reduce_extents(op, owners, op.recv);
}

// Packs end one by one: a pack that fails keeps its buffers until no member stores into them.
class Packs final : public PackReducer {
 public:
  Task<void> allreduce(Operation& pack) override { return run_in_turn(pack); }
};

Task<void> run_grouped(Operation& op) {
  Packs packs;
  const Buffer scratch = op.team.host->pack_memory(kPackBytes);
  co_await grouped_allreduce(op, packs, {&scratch, 1}, nullptr);
}

Task<void> run_chosen(Operation& op, std::uint64_t& number) {
  IntraTeam& team = *op.team.host;
  if (team.failed()) throw Error(Code::kAborted, "an earlier operation of this group failed");
  if (op.call.kind == Collective::kGroupedAllreduce) {
    co_await run_grouped(op);
    co_return;
  }
  normalize_buffers(op);
  const std::optional<std::uint64_t> begun = team.take_begun();
  number = begun.value_or(team.next_number());
  if (begun || contribution_bytes(op.call, team.size()) <= one_shot_bytes(op.call, team.size())) {
    co_await one_shot(op, begun);
    co_return;
  }
  if (op.call.reduction.leaves_partials()) {
    co_await reduce_partially(op);
    co_return;
  }
  team.need_staging();
  if (exchanges_blocks(op.call.kind)) {
    co_await exchange_blocks(op);
    co_return;
  }
  number = co_await arrive(op);
  co_await run_after_arrival(op, number);
}

// Returns when no member stores into the result any more.
Task<void> keep_buffers(Operation& op, std::uint64_t number) {
  IntraTeam& team = *op.team.host;
  HostDomain& domain = team.domain();
  domain.abort_stores(team.store_id(number));
  if (!op.recv.on_host()) co_return;
  const IntraTeam::Place place = domain.offset_of(op.recv.data, op.recv.bytes);
  if (place && op.recv.bytes > 0) co_await domain.quiesce(team.store_id(number), {*place, op.recv.bytes});
}

}  // namespace

Task<void> run(Operation& op) {
  IntraTeam& team = *op.team.host;
  try {
    co_await TurnQueue::Await(team.turns(), team.loop(), op.stop);
  } catch (...) {
    team.fail();
    throw;
  }
  const TurnQueue::Holder holder(team.turns());
  co_await run_in_turn(op);
}

Task<void> run_in_turn(Operation& op) {
  IntraTeam& team = *op.team.host;
  std::exception_ptr error;
  std::uint64_t number = 0;
  try {
    co_await run_chosen(op, number);
    if (number != 0) team.require_whole(number);
  } catch (...) {
    error = std::current_exception();
  }
  if (!error) co_return;
  team.fail(number);
  if (number != 0) co_await keep_buffers(op, number);
  std::rethrow_exception(error);
}

}  // namespace aiacc::intra

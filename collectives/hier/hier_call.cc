#include "collectives/hier/hier_call.h"

#include <algorithm>
#include <numeric>

#include "collectives/inter/select.h"

namespace aiacc::hier {

std::size_t HierCall::first_of(int of) const noexcept {
  return static_cast<std::size_t>(view.ranks_on_host(of).data() - view.host_by_host().data());
}

bool HierCall::host_by_host() const noexcept {
  const std::span<const int> ranks = view.host_by_host();
  return std::is_sorted(ranks.begin(), ranks.end());
}

Reduction HierCall::reduction_on_host() const noexcept {
  Reduction reduction = op.call.reduction;
  // The average of booleans is their logical AND: it divides nothing, and the AND of the hosts' ANDs is the result.
  const bool divides = reduction.op == ReduceOp::kAvg && reduction.type != DType::kBool;
  if (divides) reduction.op = ReduceOp::kSum;
  reduction.postscale = 1.0;
  if (has_partials()) reduction.results = reduction.accumulate_type();
  return reduction;
}

Reduction HierCall::reduction_between() const noexcept {
  Reduction reduction = op.call.reduction;
  if (!alone() || has_partials()) reduction.prescale = 1.0;
  if (has_partials()) reduction.operands = reduction.accumulate_type();
  return reduction;
}

Task<void> HierCall::widen(const Reduction& reduction, Buffer send, const intra::Extents& extents, Buffer into,
                           Stop& stop) {
  const std::vector<intra::Extents::Piece> pieces = extents.pieces(0, extents.count());
  for (const auto& [position, extent] : pieces) {
    const std::size_t element = reduction.element_bytes(), result = reduction.result_bytes();
    const Buffer from = send.slice(extent.begin * element, extent.count * element);
    const Buffer to = into.slice(position * result, extent.count * result);
    co_await op.team.compute.reduce({&to, 1}, {&from, 1}, extent.count, reduction, {.ranks = op.inputs()}, stop);
  }
}

Task<void> HierCall::on_host(Call call, Buffer send, Buffer recv, Stop& stop) {
  if (alone()) {
    if (!call.reduction.leaves_partials()) co_return;
    intra::Extents all;
    all.add({0, call.count});
    co_await widen(call.reduction, send, all, recv, stop);
    co_return;
  }
  const PartOf part{op.whole(), op.inputs(), &exchange_};
  Operation phase{op.team, call, op.sequence, stop, send, recv, &part};
  co_await local_->exchange(phase);
}

Task<void> HierCall::reduce_on_host(Buffer send, std::span<const intra::Extents> owners, Buffer into, Stop& stop) {
  if (alone()) {
    if (has_partials()) co_await widen(reduction_on_host(), send, owners.front(), into, stop);
    co_return;
  }
  const PartOf part{op.whole(), op.inputs(), &exchange_};
  Operation phase{op.team, op.call, op.sequence, stop, send, {}, &part};
  phase.call.reduction = reduction_on_host();
  co_await local_->reduce_scatter(phase, owners, into);
}

Task<void> HierCall::spread_on_host(std::span<const intra::Extents> owners, Buffer recv, Stop& stop) {
  if (alone()) co_return;
  const PartOf part{op.whole(), op.inputs(), &exchange_};
  Operation phase{op.team, op.call, op.sequence, stop, {}, recv, &part};
  co_await local_->all_gather(phase, owners);
}

Task<void> HierCall::between(Call call, std::vector<int> members, Buffer send, Buffer recv,
                             std::span<const Extent> blocks, std::uint64_t first_step, Stop& stop) {
  const PartOf part{op.whole(), op.inputs(), &exchange_, members, host, first_step_ + first_step};
  call.blocks = blocks;
  Operation phase{op.team, call, op.sequence, stop, send, recv, &part};
  co_await inter::run(phase);
}

Task<void> HierCall::between_same_local_ranks(Call call, Buffer send, Buffer recv, std::span<const Extent> blocks,
                                              std::uint64_t first_step, Stop& stop) {
  std::vector<int> members;
  members.reserve(static_cast<std::size_t>(view.hosts()));
  for (int of = 0; of < view.hosts(); ++of)
    members.push_back(view.ranks_on_host(of)[static_cast<std::size_t>(local_rank)]);
  return between(call, std::move(members), send, recv, blocks, first_step, stop);
}

Task<void> HierCall::between_all(Call call, Buffer send, Buffer recv, Stop& stop) {
  std::vector<int> members(static_cast<std::size_t>(op.team.size()));
  std::iota(members.begin(), members.end(), 0);
  const PartOf part{.whole = op.whole(),
                    .ranks = op.inputs(),
                    .exchange = &exchange_,
                    .members = members,
                    .position = op.team.rank,
                    .first_step = first_step_,
                    .skips_host = !alone()};
  Operation phase{op.team, call, op.sequence, stop, send, recv, &part};
  co_await inter::run(phase);
}

Task<void> HierCall::between_representatives(Call call, Buffer send, Buffer recv, std::span<const Extent> blocks,
                                             std::uint64_t first_step, Stop& stop) {
  std::vector<int> members;
  members.reserve(static_cast<std::size_t>(view.hosts()));
  for (int of = 0; of < view.hosts(); ++of) members.push_back(representative(of, call.root));
  return between(call, std::move(members), send, recv, blocks, first_step, stop);
}

}  // namespace aiacc::hier

#include "collectives/hier/allreduce.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "base/task/scope.h"
#include "collectives/hier/select.h"
#include "collectives/inter/double_tree.h"
#include "collectives/inter/inter_call.h"

namespace aiacc::hier {
namespace {

Call between_hosts(const HierCall& call, std::size_t count) {
  Call between = call.op.call;
  between.count = count;
  between.reduction = call.reduction_between();
  return between;
}

Task<void> through_leaders(HierCall& call) {
  Operation& op = call.op;
  const Buffer nothing;
  const std::span<const Extent> no_blocks;
  Call here = op.call;
  here.kind = Collective::kReduce;
  here.root = call.leader();
  here.reduction = call.reduction_on_host();
  inter::Scratch scratch(op, call.is_leader() && call.has_partials() ? op.call.count * call.partial_bytes() : 0);
  const Buffer reduced = call.has_partials() ? scratch.buffer() : op.recv;
  co_await call.on_host(here, op.send, call.is_leader() ? reduced : nothing, op.stop);
  if (call.is_leader()) {
    const Buffer partial = call.alone() && !call.has_partials() ? op.send : reduced;
    co_await call.between_same_local_ranks(between_hosts(call, op.call.count), partial, op.recv, no_blocks, 0, op.stop);
  }
  here.kind = Collective::kBroadcast;
  here.reduction = op.call.reduction;
  co_await call.on_host(here, call.is_leader() ? op.recv : nothing, call.is_leader() ? nothing : op.recv, op.stop);
}

// The payload is divided into slices, and each slice into all shards. While one slice is between hosts, the next one is
// reduced on each host.
struct Sliced {
  HierCall& call;
  std::size_t shards;
  inter::Parts slices;
  std::deque<Event> came = {};               // by slice: its sum is complete on the owners of its shards
  std::deque<inter::Scratch> partials = {};  // partial sums of 16-bit floats, for the slices in progress

  std::vector<intra::Extents> owners(std::size_t slice) const {
    const inter::Parts parts{slices.length(slice), shards};
    std::vector<intra::Extents> found(shards);
    for (std::size_t shard = 0; shard < shards; ++shard) {
      found[shard].add({slices.offset(slice) + parts.offset(shard), parts.length(shard)});
    }
    return found;
  }
  bool owns() const noexcept { return static_cast<std::size_t>(call.local_rank) < shards; }
  // This rank's shard of a slice.
  Extent own(std::size_t slice) const noexcept {
    const inter::Parts parts{slices.length(slice), shards};
    const auto shard = static_cast<std::size_t>(call.local_rank);
    return {slices.offset(slice) + parts.offset(shard), parts.length(shard)};
  }
  Buffer part_of(const Buffer& buffer, Extent extent) const noexcept {
    const std::size_t element = call.op.call.element_bytes();
    return buffer.slice(extent.begin * element, extent.count * element);
  }
  // The place of the host's sum of this rank's shard of a slice.
  Buffer partial(std::size_t slice) noexcept {
    if (partials.empty()) return part_of(call.op.recv, own(slice));
    return partials[slice % partials.size()].buffer().slice(0, own(slice).count * call.partial_bytes());
  }
  // An upper bound of the steps that any algorithm takes for a slice.
  std::uint64_t steps() const noexcept {
    const auto hosts = static_cast<std::uint64_t>(call.view.hosts());
    return std::max(2 * hosts * inter::pieces_of(2 * kSliceBytes, inter::kSliceBytes),
                    inter::double_tree_steps(2 * kSliceBytes));
  }
};

Task<void> exchange(Sliced& run, std::size_t slice, Stop& stop) {
  HierCall& call = run.call;
  const Extent own = run.own(slice);
  const Buffer result = run.part_of(call.op.recv, own);
  const Buffer partial = call.alone() && !call.has_partials() ? run.part_of(call.op.send, own) : run.partial(slice);
  const std::span<const Extent> no_blocks;
  co_await call.between_same_local_ranks(between_hosts(call, own.count), partial, result, no_blocks,
                                         slice * run.steps(), stop);
  run.came[slice].set();
}

Task<void> reduce_here(Sliced& run, std::size_t slice, Stop& stop) {
  const std::vector<intra::Extents> owners = run.owners(slice);
  const Buffer nothing;
  const Buffer into = run.owns() ? run.partial(slice) : nothing;
  co_await run.call.reduce_on_host(run.call.op.send, owners, into, stop);
}

Task<void> spread_here(Sliced& run, std::size_t slice, Stop& stop) {
  if (run.owns()) co_await run.came[slice].wait(stop);
  const std::vector<intra::Extents> owners = run.owners(slice);
  co_await run.call.spread_on_host(owners, run.call.op.recv, stop);
}

Task<void> run_slices(Sliced& run, Scope& scope) {
  const std::size_t slices = run.slices.parts;
  for (std::size_t step = 0; step < slices + kSlicesBetween; ++step) {
    if (step < slices) {
      co_await reduce_here(run, step, scope.stop());
      if (run.owns()) scope.spawn(exchange(run, step, scope.stop()));
    }
    if (step >= kSlicesBetween) co_await spread_here(run, step - kSlicesBetween, scope.stop());
  }
}

}  // namespace

Task<void> allreduce(HierCall& call) {
  Operation& op = call.op;
  const std::size_t shards = shards_of(call.view, op.call.bytes());
  // Partial sums in fp32 are twice as long as the payload; slices bound their memory.
  const bool in_slices = shards > 1 || (call.has_partials() && op.call.bytes() > kLeadersBytes);
  if (!in_slices) {
    co_await through_leaders(call);
    co_return;
  }
  const std::size_t slices = inter::pieces_of(op.call.bytes(), shards * kSliceBytes);
  Sliced run{call, shards, inter::Parts{op.call.count, slices}};
  for (std::size_t slice = 0; slice < slices; ++slice) run.came.emplace_back(op.team.loop);
  // kSlicesBetween slices are between hosts while one more is reduced on this host.
  for (std::size_t room = 0; run.owns() && call.has_partials() && room < std::min(slices, kSlicesBetween + 1); ++room) {
    run.partials.emplace_back(op, inter::Parts{run.slices.length(0), shards}.length(0) * call.partial_bytes());
  }
  Scope scope(op.team.loop, op.stop);
  scope.spawn(run_slices(run, scope));
  co_await scope.join();
}

}  // namespace aiacc::hier

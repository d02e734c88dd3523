#include "collectives/hier/allreduce.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "collectives/hier/slices.h"
#include "collectives/inter/double_tree.h"

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

// Each slice is divided into all shards.
struct Allreduce {
  HierCall& call;
  std::size_t shards;
  inter::Parts slices;
  std::deque<inter::Scratch> partials = {};  // partial sums of 16-bit floats, for the slices in progress

  std::vector<intra::Extents> owners(std::size_t slice) const {
    const inter::Parts parts{slices.length(slice), shards};
    std::vector<intra::Extents> found(shards);
    for (std::size_t shard = 0; shard < shards; ++shard) {
      found[shard].add({slices.offset(slice) + parts.offset(shard), parts.length(shard)});
    }
    return found;
  }
  bool exchanges() const noexcept { return static_cast<std::size_t>(call.local_rank) < shards; }
  bool waits() const noexcept { return exchanges(); }
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
    return std::max(ring_steps_of_slice(call), inter::double_tree_steps(2 * kSliceBytes));
  }

  Task<void> before(std::size_t slice, Stop& stop) {
    const std::vector<intra::Extents> shares = owners(slice);
    const Buffer nothing;
    const Buffer into = exchanges() ? partial(slice) : nothing;
    co_await call.reduce_on_host(call.op.send, shares, into, stop);
  }
  Task<void> between(std::size_t slice, Stop& stop) {
    const Extent shard = own(slice);
    const Buffer result = part_of(call.op.recv, shard);
    const Buffer sum = call.alone() && !call.has_partials() ? part_of(call.op.send, shard) : partial(slice);
    const std::span<const Extent> no_blocks;
    co_await call.between_same_local_ranks(between_hosts(call, shard.count), sum, result, no_blocks, slice * steps(),
                                           stop);
  }
  Task<void> after(std::size_t slice, Stop& stop) {
    const std::vector<intra::Extents> shares = owners(slice);
    co_await call.spread_on_host(shares, call.op.recv, stop);
  }
};

}  // namespace

Task<void> allreduce(HierCall& call) {
  Operation& op = call.op;
  const std::size_t shards = shards_of(call.view, op.call.bytes());
  // Partial sums in fp32 are twice as long as the payload; slices bound their memory.
  const bool long_enough = shards > 1 || (call.has_partials() && op.call.bytes() > kLeadersBytes);
  if (!long_enough) {
    co_await through_leaders(call);
    co_return;
  }
  const std::size_t slices = inter::pieces_of(op.call.bytes(), shards * kSliceBytes);
  Allreduce run{call, shards, inter::Parts{op.call.count, slices}};
  // kSlicesBetween slices are between hosts while one more is reduced on this host.
  const std::size_t at_once = run.exchanges() && call.has_partials() ? std::min(slices, kSlicesBetween + 1) : 0;
  for (std::size_t i = 0; i < at_once; ++i) {
    run.partials.emplace_back(op, inter::Parts{run.slices.length(0), shards}.length(0) * call.partial_bytes());
  }
  co_await in_slices(run, op, slices);
}

}  // namespace aiacc::hier

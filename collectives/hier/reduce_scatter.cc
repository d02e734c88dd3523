#include "collectives/hier/reduce_scatter.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "collectives/hier/packed_layout.h"
#include "collectives/hier/slices.h"

namespace aiacc::hier {
namespace {

struct ReduceScatter {
  HierCall& call;
  const PackedLayout& layout;
  Buffer input;
  Buffer part;  // this host's part of the result; without bytes: op.recv is this rank's shard of it
  std::size_t shards;
  std::size_t slices;
  std::deque<inter::Scratch> partials = {};  // the host's sums, for the slices in progress; none: of the input itself

  std::size_t bytes(std::size_t elements) const noexcept { return elements * call.op.call.element_bytes(); }
  std::size_t own() const noexcept { return static_cast<std::size_t>(call.local_rank); }
  bool exchanges() const noexcept { return own() < shards; }
  bool waits() const noexcept { return exchanges(); }
  Extent piece(int of, std::size_t shard, std::size_t slice) const {
    return layout.piece(of, shard, shards, slice, slices);
  }
  // Relative to the part's beginning.
  Extent result_of(std::size_t shard, std::size_t slice) const {
    const Extent its = piece(call.host, shard, slice);
    return {its.begin - layout.part(call.host).begin, its.count};
  }
  // The elements of the input that belong to a shard: one extent in each host's part.
  intra::Extents inputs_of(std::size_t shard, std::size_t slice) const {
    intra::Extents extents;
    for (int of = 0; of < call.view.hosts(); ++of) extents.add(piece(of, shard, slice));
    return extents;
  }
  Buffer partial(std::size_t slice) const noexcept {
    return partials.empty() ? input : partials[slice % partials.size()].buffer();
  }

  Task<void> before(std::size_t slice, Stop& stop) {
    std::vector<intra::Extents> owners;
    for (std::size_t shard = 0; shard < shards; ++shard) owners.push_back(inputs_of(shard, slice));
    const Buffer nothing;
    const Buffer into = exchanges() ? partial(slice).slice(0, owners[own()].count() * call.partial_bytes()) : nothing;
    co_await call.reduce_on_host(input, owners, into, stop);
  }
  Task<void> between(std::size_t slice, Stop& stop) {
    std::vector<Extent> blocks;
    std::size_t at = 0;
    for (int of = 0; of < call.view.hosts(); ++of) {
      const Extent its = piece(of, own(), slice);
      blocks.push_back({partials.empty() ? its.begin : at, its.count});
      at += its.count;
    }
    const Extent mine = result_of(own(), slice);
    const std::size_t offset = part.bytes > 0 ? mine.begin : mine.begin - result_of(own(), 0).begin;
    const Buffer result = (part.bytes > 0 ? part : call.op.recv).slice(bytes(offset), bytes(mine.count));
    Call those = call.op.call;
    those.reduction = call.reduction_between();
    co_await call.between_same_local_ranks(those, partial(slice), result, blocks, slice * ring_steps_of_slice(call),
                                           stop);
  }
  Task<void> after(std::size_t slice, Stop& stop) {
    if (part.bytes == 0) co_return;
    std::vector<intra::Extents> owners(shards);
    for (std::size_t shard = 0; shard < shards; ++shard) owners[shard].add(result_of(shard, slice));
    co_await call.spread_on_host(owners, part, stop);
  }
};

Task<void> reduce_blocks(HierCall& call, const PackedLayout& layout, Buffer input) {
  Operation& op = call.op;
  const std::size_t shards = shards_of(call.view, op.send.bytes);
  // Each slice in progress has memory for the shards of all hosts.
  const std::size_t largest = std::max(kSliceBytes / static_cast<std::size_t>(call.view.hosts()), inter::kSliceBytes);
  const std::size_t slices = layout.slices_of(shards, call.partial_bytes(), largest);
  const Extent here = layout.part(call.host);
  const std::size_t element = op.call.element_bytes();
  inter::Scratch scratch(op, layout.shards_are_blocks(call.host, shards) ? 0 : here.count * element);
  ReduceScatter run{call, layout, input, scratch.buffer(), shards, slices};
  // kSlicesBetween slices are between hosts while one more is reduced on this host.
  const bool in_scratch = run.exchanges() && (call.has_partials() || !call.alone());
  for (std::size_t i = 0; in_scratch && i < std::min(slices, kSlicesBetween + 1); ++i) {
    run.partials.emplace_back(op, run.inputs_of(run.own(), 0).count() * call.partial_bytes());
  }
  co_await in_slices(run, op, slices);
  if (run.part.bytes == 0) co_return;
  const Extent own = layout.own_block();
  const Buffer block = run.part.slice((own.begin - here.begin) * element, own.count * element);
  if (block.bytes > 0) co_await op.team.compute.copy(op.recv, block, op.stop);
}

}  // namespace

Task<void> reduce_scatter(HierCall& call) {
  Operation& op = call.op;
  const PackedLayout layout(call);
  if (layout.is_the_calls()) {
    co_await reduce_blocks(call, layout, op.send);
    co_return;
  }
  inter::Scratch scratch(op, op.send.bytes);
  const Buffer input = scratch.buffer();
  const std::size_t element = op.call.element_bytes();
  std::size_t position = 0;
  for (const int rank : call.view.host_by_host()) {
    const Extent packed = layout.block(position++);
    const Buffer to = input.slice(packed.begin * element, packed.count * element);
    const Buffer from = op.send.slice(op.call.block(rank).begin * element, to.bytes);
    if (to.bytes > 0) co_await op.team.compute.copy(to, from, op.stop);
  }
  co_await reduce_blocks(call, layout, input);
}

}  // namespace aiacc::hier

#include "collectives/hier/reduce_scatter.h"

#include <vector>

#include "collectives/hier/packed_layout.h"
#include "collectives/hier/select.h"
#include "collectives/inter/inter_call.h"

namespace aiacc::hier {
namespace {

struct ReduceScatter {
  HierCall& call;
  const PackedLayout& layout;
  std::size_t shards;

  std::size_t bytes(std::size_t elements) const noexcept { return elements * call.op.call.element_bytes(); }
  bool owns() const noexcept { return static_cast<std::size_t>(call.local_rank) < shards; }
  inter::Parts parts(int of) const noexcept { return {layout.part(of).count, shards}; }
  // The elements of the input that belong to a shard: one extent in each host's part.
  intra::Extents shard(std::size_t shard) const {
    intra::Extents extents;
    for (int of = 0; of < call.view.hosts(); ++of) {
      extents.add({layout.part(of).begin + parts(of).offset(shard), parts(of).length(shard)});
    }
    return extents;
  }
  std::size_t elements_of(std::size_t owned) const { return shard(owned).count(); }
};

// Leaves in `result` the reduced shard of its host's part that this rank owns.
Task<void> reduce_shard(ReduceScatter& run, Buffer input, Buffer result) {
  HierCall& call = run.call;
  const auto mine = static_cast<std::size_t>(call.local_rank);
  const bool in_scratch = call.has_partials() || !call.alone();
  inter::Scratch scratch(call.op, run.owns() && in_scratch ? run.elements_of(mine) * call.partial_bytes() : 0);
  Buffer partial = in_scratch ? scratch.buffer() : input;
  std::vector<intra::Extents> owners;
  for (std::size_t shard = 0; shard < run.shards; ++shard) owners.push_back(run.shard(shard));
  co_await call.reduce_on_host(input, owners, partial, call.op.stop);
  if (!run.owns()) co_return;

  std::vector<Extent> blocks;
  std::size_t at = 0;
  for (int of = 0; of < call.view.hosts(); ++of) {
    blocks.push_back({at, run.parts(of).length(mine)});
    at += blocks.back().count;
  }
  Call between = call.op.call;
  between.reduction = call.reduction_between();
  co_await call.between_same_local_ranks(between, partial, result, blocks, 0, call.op.stop);
}

Task<void> reduce_blocks(ReduceScatter& run, Buffer input) {
  HierCall& call = run.call;
  Operation& op = call.op;
  const inter::Parts here = run.parts(call.host);
  const auto mine = static_cast<std::size_t>(call.local_rank);
  if (run.shards == static_cast<std::size_t>(call.here()) && !op.call.uneven) {
    co_await reduce_shard(run, input, op.recv);
    co_return;
  }
  inter::Scratch scratch(op, run.bytes(here.count));
  const Buffer part = scratch.buffer();
  const Buffer nothing;
  const Buffer result = run.owns() ? part.slice(run.bytes(here.offset(mine)), run.bytes(here.length(mine))) : nothing;
  co_await reduce_shard(run, input, result);
  std::vector<intra::Extents> owners(run.shards);
  for (std::size_t shard = 0; shard < run.shards; ++shard) owners[shard].add({here.offset(shard), here.length(shard)});
  co_await call.spread_on_host(owners, part, op.stop);
  const Extent own = run.layout.own_block();
  const Buffer block = part.slice(run.bytes(own.begin - run.layout.part(call.host).begin), run.bytes(own.count));
  if (block.bytes > 0) co_await op.team.compute.copy(op.recv, block, op.stop);
}

}  // namespace

Task<void> reduce_scatter(HierCall& call) {
  Operation& op = call.op;
  const PackedLayout layout(call);
  ReduceScatter run{call, layout, shards_of(call.view, op.send.bytes)};
  if (layout.is_the_calls()) {
    co_await reduce_blocks(run, op.send);
    co_return;
  }
  inter::Scratch scratch(op, op.send.bytes);
  const Buffer input = scratch.buffer();
  std::size_t position = 0;
  for (const int rank : call.view.host_by_host()) {
    const Extent packed = layout.block(position++);
    const Buffer to = input.slice(run.bytes(packed.begin), run.bytes(packed.count));
    const Buffer from = op.send.slice(run.bytes(op.call.block(rank).begin), to.bytes);
    if (to.bytes > 0) co_await op.team.compute.copy(to, from, op.stop);
  }
  co_await reduce_blocks(run, input);
}

}  // namespace aiacc::hier

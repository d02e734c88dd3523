#include "collectives/hier/allgather.h"

#include <vector>

#include "collectives/hier/packed_layout.h"
#include "collectives/hier/select.h"
#include "collectives/inter/inter_call.h"

namespace aiacc::hier {
namespace {

struct Allgather {
  HierCall& call;
  const PackedLayout& layout;

  Buffer part_of(const Buffer& buffer, Extent extent) const noexcept {
    const std::size_t element = call.op.call.element_bytes();
    return buffer.slice(extent.begin * element, extent.count * element);
  }
  // Shard `shard` of `shards` of a host's part, in elements of the packed result.
  Extent shard_of(int of, std::size_t shard, std::size_t shards) const noexcept {
    const Extent part = layout.part(of);
    const inter::Parts parts{part.count, shards};
    return {part.begin + parts.offset(shard), parts.length(shard)};
  }
};

// Gathers the blocks of this host's ranks.
Task<void> gather_here(Allgather& run, Buffer here) {
  HierCall& call = run.call;
  Operation& op = call.op;
  if (call.alone()) {
    if (here.data != op.send.data || here.data == nullptr) co_await op.team.compute.copy(here, op.send, op.stop);
    co_return;
  }
  const Extent part = run.layout.part(call.host);
  std::vector<Extent> blocks;
  for (std::size_t member = 0; op.call.uneven && member < static_cast<std::size_t>(call.here()); ++member) {
    const Extent block = run.layout.block(call.first_of(call.host) + member);
    blocks.push_back({block.begin - part.begin, block.count});
  }
  Call phase = op.call;
  phase.blocks = blocks;
  if (op.call.uneven) phase.count = part.count;
  co_await call.on_host(phase, op.send, here, op.stop);
}

Task<void> gather(Allgather& run, Buffer all) {
  HierCall& call = run.call;
  Operation& op = call.op;
  const int hosts = call.view.hosts();
  const Buffer here = run.part_of(all, run.layout.part(call.host));
  co_await gather_here(run, here);

  const std::size_t shards = shards_of(call.view, all.bytes);
  if (static_cast<std::size_t>(call.local_rank) < shards) {
    std::vector<Extent> blocks;
    for (int of = 0; of < hosts; ++of) {
      blocks.push_back(run.shard_of(of, static_cast<std::size_t>(call.local_rank), shards));
    }
    const Buffer mine = run.part_of(all, blocks[static_cast<std::size_t>(call.host)]);
    co_await call.between_same_local_ranks(op.call, mine, all, blocks, 0, op.stop);
  }

  std::vector<intra::Extents> owners(shards);
  for (std::size_t shard = 0; shard < shards; ++shard) {
    for (int of = 0; of < hosts; ++of) {
      if (of != call.host) owners[shard].add(run.shard_of(of, shard, shards));
    }
  }
  co_await call.spread_on_host(owners, all, op.stop);
}

}  // namespace

Task<void> allgather(HierCall& call) {
  Operation& op = call.op;
  const PackedLayout layout(call);
  Allgather run{call, layout};
  const Buffer whole = run.part_of(op.recv, {0, layout.count()});
  if (layout.is_the_calls()) {
    co_await gather(run, whole);
    co_return;
  }
  inter::Scratch scratch(op, whole.bytes);
  const Buffer all = scratch.buffer();
  co_await gather(run, all);
  std::size_t position = 0;
  for (const int rank : call.view.host_by_host()) {
    const Buffer from = run.part_of(all, layout.block(position++));
    const Buffer to = run.part_of(op.recv, op.call.block(rank));
    if (to.bytes > 0) co_await op.team.compute.copy(to, from, op.stop);
  }
}

}  // namespace aiacc::hier

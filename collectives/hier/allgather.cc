#include "collectives/hier/allgather.h"

#include <vector>

#include "collectives/hier/packed_layout.h"
#include "collectives/hier/slices.h"

namespace aiacc::hier {
namespace {

struct Allgather {
  HierCall& call;
  const PackedLayout& layout;
  Buffer all;  // the result, host by host
  std::size_t shards;
  std::size_t slices;
  bool of_own_blocks;  // each rank's shard of its host's part is its own block

  bool exchanges() const noexcept { return static_cast<std::size_t>(call.local_rank) < shards; }
  bool waits() const noexcept { return exchanges(); }
  Buffer part_of(const Buffer& buffer, Extent extent) const noexcept {
    const std::size_t element = call.op.call.element_bytes();
    return buffer.slice(extent.begin * element, extent.count * element);
  }

  Task<void> before(std::size_t, Stop&) { co_return; }
  Task<void> between(std::size_t slice, Stop& stop) {
    std::vector<Extent> pieces;
    for (int of = 0; of < call.view.hosts(); ++of) {
      pieces.push_back(layout.piece(of, static_cast<std::size_t>(call.local_rank), shards, slice, slices));
    }
    const Buffer mine = part_of(all, pieces[static_cast<std::size_t>(call.host)]);
    co_await call.between_same_local_ranks(call.op.call, mine, all, pieces, slice * ring_steps_of_slice(call), stop);
  }
  Task<void> after(std::size_t slice, Stop& stop) {
    std::vector<intra::Extents> owners(shards);
    for (std::size_t shard = 0; shard < shards; ++shard) {
      for (int of = 0; of < call.view.hosts(); ++of) {
        if (of_own_blocks || of != call.host) owners[shard].add(layout.piece(of, shard, shards, slice, slices));
      }
    }
    co_await call.spread_on_host(owners, all, stop);
  }
};

Task<void> copy_own(Allgather& run, Buffer to) {
  Operation& op = run.call.op;
  if (to.data != op.send.data || to.data == nullptr) co_await op.team.compute.copy(to, op.send, op.stop);
}

// Gathers the blocks of this host's ranks.
Task<void> gather_here(Allgather& run) {
  HierCall& call = run.call;
  Operation& op = call.op;
  const Extent part = run.layout.part(call.host);
  const Buffer here = run.part_of(run.all, part);
  if (call.alone()) {
    co_await copy_own(run, here);
    co_return;
  }
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

Task<void> gather(HierCall& call, const PackedLayout& layout, Buffer all) {
  const std::size_t shards = shards_of(call.view, all.bytes);
  const std::size_t slices = layout.slices_of(shards, call.op.call.element_bytes());
  Allgather run{call, layout, all, shards, slices, layout.shards_are_blocks(shards)};
  if (run.of_own_blocks) {
    co_await copy_own(run, run.part_of(all, layout.own_block()));
  } else {
    co_await gather_here(run);
  }
  co_await in_slices(run, call.op, slices);
}

}  // namespace

Task<void> allgather(HierCall& call) {
  Operation& op = call.op;
  const PackedLayout layout(call);
  const std::size_t element = op.call.element_bytes();
  const Buffer whole = op.recv.slice(0, layout.count() * element);
  if (layout.is_the_calls()) {
    co_await gather(call, layout, whole);
    co_return;
  }
  inter::Scratch scratch(op, whole.bytes);
  const Buffer all = scratch.buffer();
  co_await gather(call, layout, all);
  std::size_t position = 0;
  for (const int rank : call.view.host_by_host()) {
    const Extent packed = layout.block(position++);
    const Buffer from = all.slice(packed.begin * element, packed.count * element);
    const Buffer to = op.recv.slice(op.call.block(rank).begin * element, from.bytes);
    if (to.bytes > 0) co_await op.team.compute.copy(to, from, op.stop);
  }
}

}  // namespace aiacc::hier

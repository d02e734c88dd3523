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
  // Each rank's shard of its host's part is its own block: slices of it travel at once, and come to the host's ranks with the
  // others.
  bool by_blocks;

  bool exchanges() const noexcept { return static_cast<std::size_t>(call.local_rank) < shards; }
  bool waits() const noexcept { return exchanges(); }
  Buffer part_of(const Buffer& buffer, Extent extent) const noexcept {
    const std::size_t element = call.op.call.element_bytes();
    return buffer.slice(extent.begin * element, extent.count * element);
  }

  Task<void> copy_own() {
    Operation& op = call.op;
    const Buffer to = part_of(all, layout.own_block());
    if (to.data != op.send.data || to.data == nullptr) co_await op.team.compute.copy(to, op.send, op.stop);
  }
  // Gathers the blocks of this host's ranks.
  Task<void> gather_here(Stop& stop) {
    const Extent part = layout.part(call.host);
    std::vector<Extent> blocks;
    for (std::size_t member = 0; call.op.call.uneven && member < static_cast<std::size_t>(call.here()); ++member) {
      const Extent block = layout.block(call.first_of(call.host) + member);
      blocks.push_back({block.begin - part.begin, block.count});
    }
    Call phase = call.op.call;
    phase.blocks = blocks;
    if (call.op.call.uneven) phase.count = part.count;
    co_await call.on_host(phase, call.op.send, part_of(all, part), stop);
  }

  Task<void> before(std::size_t slice, Stop& stop) {
    if (slice > 0) co_return;
    if (by_blocks || call.alone()) {
      co_await copy_own();
    } else {
      co_await gather_here(stop);
    }
  }
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
        if (by_blocks || of != call.host) owners[shard].add(layout.piece(of, shard, shards, slice, slices));
      }
    }
    co_await call.spread_on_host(owners, all, stop);
  }
};

Task<void> gather(HierCall& call, const PackedLayout& layout, Buffer all) {
  const std::size_t shards = shards_of(call.view, all.bytes);
  const std::size_t slices = layout.slices_of(shards, call.op.call.element_bytes(), kSliceBytes);
  Allgather run{call, layout, all, shards, slices, slices > 1 && layout.shards_are_blocks(shards)};
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

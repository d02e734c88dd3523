#include "collectives/hosts/allgather.h"

#include <vector>

#include "collectives/hosts/select.h"
#include "collectives/net/net_call.h"

namespace aiacc::hosts {
namespace {

// Elements of the result, host by host: shard `shard` of `shards` of each host's part.
Extent shard_of(const HostsCall& call, int of, std::size_t shard, std::size_t shards) {
  const std::size_t count = call.op.call.count;
  const net::Parts parts{count * static_cast<std::size_t>(call.members_of(of)), shards};
  return {call.first_of(of) * count + parts.offset(shard), parts.length(shard)};
}

Task<void> gather(HostsCall& call, Buffer all) {
  Operation& op = call.op;
  const std::size_t element = op.call.element_bytes();
  const std::size_t block = op.call.bytes();
  const int hosts = call.view.hosts();
  const Buffer here = all.slice(call.first_of(call.host) * block, block * static_cast<std::size_t>(call.here()));
  if (call.alone()) {
    if (here.data != op.send.data || here.data == nullptr) co_await op.team.compute.copy(here, op.send);
  } else {
    co_await call.on_host(op.call, op.send, here, op.stop);
  }

  const std::size_t shards = shards_of(call.view, all.bytes);
  if (static_cast<std::size_t>(call.place) < shards) {
    std::vector<Extent> blocks;
    for (int of = 0; of < hosts; ++of) {
      blocks.push_back(shard_of(call, of, static_cast<std::size_t>(call.place), shards));
    }
    const Extent own = blocks[static_cast<std::size_t>(call.host)];
    const Buffer mine = all.slice(own.begin * element, own.count * element);
    co_await call.between_places(op.call, mine, all, blocks, 0, op.stop);
  }

  std::vector<host::Extents> owners(shards);
  for (std::size_t shard = 0; shard < shards; ++shard) {
    for (int of = 0; of < hosts; ++of) {
      if (of != call.host) owners[shard].add(shard_of(call, of, shard, shards));
    }
  }
  co_await call.spread_on_host(owners, all, op.stop);
}

}  // namespace

Task<void> allgather(HostsCall& call) {
  Operation& op = call.op;
  if (call.host_by_host()) {
    co_await gather(call, op.recv);
    co_return;
  }
  net::Scratch scratch(op, op.recv.bytes);
  const Buffer all = scratch.buffer();
  co_await gather(call, all);
  const std::size_t block = op.call.bytes();
  std::size_t at = 0;
  for (const int rank : call.view.host_by_host()) {
    const Buffer from = all.slice(at++ * block, block);
    const Buffer to = op.recv.slice(static_cast<std::size_t>(rank) * block, block);
    co_await op.team.compute.copy(to, from);
  }
}

}  // namespace aiacc::hosts

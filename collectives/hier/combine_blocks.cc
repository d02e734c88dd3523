#include "collectives/hier/combine_blocks.h"

#include <algorithm>
#include <vector>

#include "collectives/hier/packed_layout.h"
#include "collectives/hier/select.h"

namespace aiacc::hier {
namespace {

// Each of the most - 1 messages that a rank, or a root for a host, saves takes as long as so many bytes of what two hosts exchange take
// on their way over their representatives. Chosen on two hosts of two ranks, which share two cores (bench/hosts/run --hosts 2x2); more
// ranks a host have not been measured. Senders of a gather wait for nobody else; the root of a scatter sends one message after another.
constexpr std::size_t bytes_for_a_message(Collective kind) noexcept {
  return kind == Collective::kGather ? 1 << 10 : kind == Collective::kScatter ? 16 << 10 : 4 << 10;
}

bool hosts_are_alike(const View& view) noexcept { return view.fewest_on_a_host() == view.most_on_a_host(); }

// The call among the hosts' representatives with a block for each host: an even one if all have the same length.
Call call_among_hosts(const HierCall& call, std::vector<Extent>& blocks) {
  Call those = call.op.call;
  if (hosts_are_alike(call.view)) {
    those.count = blocks.front().count;
    blocks.clear();
    return those;
  }
  those.uneven = true;
  those.count = blocks.back().end();
  return those;
}

struct Rooted {
  HierCall& call;
  PackedLayout layout{call};
  bool in_order = layout.is_the_calls();
  bool is_root = call.op.team.rank == call.op.call.root;
  int representative = call.representative(call.host, call.op.call.root);
  bool exchanges = call.op.team.rank == representative;
  // At the root the blocks of all ranks, if theirs is another order; at another host's representative those of its ranks.
  inter::Scratch scratch{call.op, scratch_bytes()};

  std::size_t bytes(std::size_t elements) const noexcept { return elements * call.op.call.element_bytes(); }
  std::size_t scratch_bytes() const noexcept {
    if (is_root) return in_order ? 0 : bytes(layout.count());
    return exchanges && !call.alone() ? bytes(layout.part(call.host).count) : 0;
  }
  // The blocks of this host's ranks, at its representative; `own` is this rank's block, which is all if it is alone.
  Buffer part(const Buffer& all, const Buffer& own) const noexcept {
    if (!exchanges) return {};
    if (call.alone()) return own;
    if (!is_root) return scratch.buffer();
    const Extent here = layout.part(call.host);
    return all.slice(bytes(here.begin), bytes(here.count));
  }
  Task<void> on_host(Buffer send, Buffer recv) {
    Call phase = call.op.call;
    phase.root = representative;
    co_await call.on_host(phase, send, recv, call.op.stop);
  }
  Task<void> between(Buffer send, Buffer recv) {
    std::vector<Extent> blocks;
    for (int of = 0; of < call.view.hosts(); ++of) blocks.push_back(layout.part(of));
    const Call those = call_among_hosts(call, blocks);
    co_await call.between_representatives(those, send, recv, blocks, 0, call.op.stop);
  }
  // At the root, between the user's buffer and the order of hosts.
  Task<void> reorder(Buffer user, bool gathers) {
    std::size_t position = 0;
    for (const int rank : call.view.host_by_host()) {
      const Extent packed = layout.block(position++), its = call.op.call.block(rank);
      const Buffer here = scratch.buffer().slice(bytes(packed.begin), bytes(packed.count));
      const Buffer there = user.slice(bytes(its.begin), bytes(its.count));
      co_await call.op.team.compute.copy(gathers ? there : here, gathers ? here : there, call.op.stop);
    }
  }
};

Task<void> combine_gather(HierCall& call) {
  Operation& op = call.op;
  Rooted run{call};
  const Buffer all = run.is_root && run.in_order ? op.recv : run.scratch.buffer();
  const Buffer part = run.part(all, op.send);
  co_await run.on_host(op.send, part);
  if (!run.exchanges) co_return;
  co_await run.between(part, run.is_root ? all : Buffer{});
  if (run.is_root && !run.in_order) co_await run.reorder(op.recv, true);
}

Task<void> combine_scatter(HierCall& call) {
  Operation& op = call.op;
  Rooted run{call};
  const Buffer all = run.is_root && run.in_order ? op.send : run.scratch.buffer();
  if (run.is_root && !run.in_order) co_await run.reorder(op.send, false);
  const Buffer part = run.part(all, op.recv);
  if (run.exchanges) co_await run.between(run.is_root ? all : Buffer{}, part);
  co_await run.on_host(part, op.recv);
}

struct Alltoall {
  HierCall& call;
  std::size_t block = call.op.call.bytes();
  std::size_t ranks = static_cast<std::size_t>(call.op.team.size());
  std::size_t bytes = static_cast<std::size_t>(call.here()) * ranks * block;
  // What comes from this host's ranks and then from other hosts; and what goes to these and then to this host's ranks.
  inter::Scratch first{call.op, call.is_leader() ? bytes : 0};
  inter::Scratch second{call.op, call.is_leader() ? bytes : 0};

  Task<void> on_host(Collective kind, Buffer send, Buffer recv) {
    Call phase = call.op.call;
    phase.kind = kind;
    phase.count = ranks * call.op.call.count;
    phase.root = call.leader();
    co_await call.on_host(phase, send, recv, call.op.stop);
  }
  // Between the order of ranks and that of hosts. A message has the blocks of one rank of the sending host after those of another.
  Task<void> reorder(Buffer by_rank, Buffer by_host, bool sends) {
    const auto here = static_cast<std::size_t>(call.here());
    std::size_t packed = 0;
    for (int of = 0; of < call.view.hosts(); ++of) {
      const std::span<const int> there = call.view.ranks_on_host(of);
      for (std::size_t i = 0; i < here * there.size(); ++i, packed += block) {
        const std::size_t member = sends ? i / there.size() : i % here;
        const auto rank = static_cast<std::size_t>(there[sends ? i % there.size() : i / here]);
        const Buffer user = by_rank.slice((member * ranks + rank) * block, block);
        const Buffer message = by_host.slice(packed, block);
        co_await call.op.team.compute.copy(sends ? message : user, sends ? user : message, call.op.stop);
      }
    }
  }
  Task<void> between(Buffer send, Buffer recv) {
    const std::size_t here = static_cast<std::size_t>(call.here()) * call.op.call.count;
    std::vector<Extent> blocks;
    std::size_t at = 0;
    for (int of = 0; of < call.view.hosts(); ++of) {
      blocks.push_back({at, here * static_cast<std::size_t>(call.members_of(of))});
      at = blocks.back().end();
    }
    Call those = call_among_hosts(call, blocks);
    if (those.uneven) those.count = ranks * call.op.call.count;  // each host has another total; this is the same on all
    those.recv_blocks = blocks;
    those.root = call.view.ranks_on_host(0).front();  // the leaders represent their hosts
    co_await call.between_representatives(those, send, recv, blocks, 0, call.op.stop);
  }
};

Task<void> combine_alltoall(HierCall& call) {
  Operation& op = call.op;
  Alltoall run{call};
  const bool hands_on = !call.alone();
  const Buffer first = run.first.buffer(), second = run.second.buffer(), nothing;
  const Buffer sent = hands_on ? first : op.send;
  co_await run.on_host(Collective::kGather, op.send, call.is_leader() ? first : nothing);
  if (call.is_leader()) {
    co_await run.reorder(sent, second, true);
    co_await run.between(second, first);
    co_await run.reorder(hands_on ? second : op.recv, first, false);
  }
  co_await run.on_host(Collective::kScatter, call.is_leader() ? second : nothing, op.recv);
}

}  // namespace

std::size_t blocks_of_hosts(Collective kind, std::size_t most) noexcept {
  return kind == Collective::kAlltoall ? most * most : most;
}

std::size_t longest_combined(Collective kind, std::size_t most) noexcept {
  return std::min(bytes_for_a_message(kind) * (most - 1), kLeadersBytes) / blocks_of_hosts(kind, most);
}

Task<void> combine_blocks(HierCall& call) {
  const Call& made = call.op.call;
  if (made.count == 0) co_return;
  if (made.kind == Collective::kAlltoall) {
    co_await combine_alltoall(call);
  } else if (made.kind == Collective::kGather) {
    co_await combine_gather(call);
  } else {
    co_await combine_scatter(call);
  }
}

}  // namespace aiacc::hier

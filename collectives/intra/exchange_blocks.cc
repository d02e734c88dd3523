#include "collectives/intra/exchange_blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "collectives/intra/staging.h"

namespace aiacc::intra {
namespace {

// A member's blocks for each other member, in elements of its op.send. It writes this to its staging memory before it arrives.
struct Table {
  std::uint64_t* words;

  std::uint64_t& longest() const noexcept { return words[0]; }
  Extent block(int member) const noexcept {
    const std::uint64_t* at = words + 1 + 2 * member;
    return {at[0], at[1]};
  }
  void set_block(int member, Extent block) const noexcept {
    std::uint64_t* at = words + 1 + 2 * member;
    at[0] = block.begin;
    at[1] = block.count;
  }
};

struct BlockExchange {
  IntraCall call;
  int root;  // a member; -1: all-to-all
  std::size_t element;
  bool in_place;
  bool all_pull = true;
  std::size_t part = 0;  // bytes of each block in a chunk

  bool sends(int member) const noexcept { return root < 0 || gathers() != (member == root); }
  bool receives(int member) const noexcept { return root < 0 || gathers() == (member == root); }
  bool gathers() const noexcept { return call.op.call.kind == Collective::kGather; }
  // The elements of op.send for a member, and of op.recv from one, also for this member itself.
  Extent outgoing(int member) const noexcept {
    const Call& made = call.op.call;
    if (root < 0) return made.block(member);
    if (gathers()) return member == root ? Extent{0, call.op.send.bytes / element} : Extent{};
    return call.me() == root ? made.block(member) : Extent{};
  }
  Extent incoming(int member) const noexcept {
    const Call& made = call.op.call;
    if (root < 0) return made.recv_block(member);
    if (gathers()) return call.me() == root ? made.block(member) : Extent{};
    return member == root ? Extent{0, call.op.recv.bytes / element} : Extent{};
  }
  Table table(int member) const noexcept { return {reinterpret_cast<std::uint64_t*>(call.team.table(member))}; }
  // The elements of `member`'s op.send for this member.
  Extent theirs(int member) const noexcept {
    if (call.op.call.uneven) return table(member).block(call.me());
    return root >= 0 && gathers() ? incoming(member).count > 0 ? Extent{0, call.op.call.count} : Extent{}
                                  : call.op.call.block(call.me());
  }
  // The bytes of a member's longest block.
  std::size_t longest(int member) const noexcept {
    if (!sends(member)) return 0;
    return (call.op.call.uneven ? table(member).longest() : call.op.call.count) * element;
  }
  std::size_t longest_of_all() const noexcept {
    std::size_t most = 0;
    for (int member = 0; member < call.size(); ++member) most = std::max(most, longest(member));
    return most;
  }
  // Whether others read this member's blocks from its slots.
  bool staged(int member) const noexcept {
    if (call.team.send_place_of(member, call.number)) return false;
    return !all_pull || call.team.private_send_of(member, call.number) == nullptr;
  }
  std::byte* in_slot(const Pipeline& pipeline, int from, int to, std::uint64_t k) const {
    return pipeline.slot(from, k) + (gathers() ? 0 : part * static_cast<std::size_t>(to));
  }
};

void write_table(BlockExchange& run) {
  IntraCall& call = run.call;
  const Table table = run.table(call.me());
  table.longest() = 0;
  for (int member = 0; member < call.size(); ++member) {
    const Extent block = run.outgoing(member);
    table.set_block(member, block);
    if (member != call.me()) table.longest() = std::max<std::uint64_t>(table.longest(), block.count);
  }
}

void post_arrival(BlockExchange& run) {
  Operation& op = run.call.op;
  IntraTeam::Arrival arrival;
  arrival.fingerprint = op.whole().fingerprint();
  arrival.on_host = op.send.on_host() && op.recv.on_host();
  if (!run.in_place && op.send.bytes > 0 && op.send.on_host()) {
    arrival.send = run.call.domain.offset_of(op.send.data, op.send.bytes);
    if (!arrival.send) arrival.private_send = op.send.data;
  }
  run.call.team.arrive(op.whole(), arrival);
}

void require_lengths(const BlockExchange& run) {
  const IntraCall& call = run.call;
  for (int member = 0; member < call.size(); ++member) {
    if (member == call.me() || !run.sends(member) || !run.receives(call.me())) continue;
    const std::size_t sent = run.theirs(member).count;
    const std::size_t expected = run.incoming(member).count;
    if (sent == expected) continue;
    throw Error(
        Code::kMismatch,
        fmt::format("rank {} sends rank {} a block of {} {} where rank {} expects {}, in {}: both ends of a block "
                    "give the same count",
                    call.team.rank_of(member), call.team.rank_of(call.me()), sent, name_of(call.op.call.reduction.type),
                    call.team.rank_of(call.me()), expected, call.op.whole().describe()),
        call.team.rank_of(member));
  }
}

// Copies [at, at + bytes) of the block from `member`, which is not staged.
Task<void> take(BlockExchange& run, int member, std::size_t at, std::size_t bytes) {
  IntraCall& call = run.call;
  const std::size_t begin = run.theirs(member).begin * run.element;
  const Buffer block = call.op.recv.slice(run.incoming(member).begin * run.element, at + bytes);
  for (std::size_t done = 0; done < bytes; done += kBytesAtOnce) {
    const Buffer into = block.slice(at + done, std::min(kBytesAtOnce, bytes - done));
    if (const IntraTeam::Place place = call.team.send_place_of(member, call.number)) {
      const Buffer from{call.view(member, *place + begin + at + done, into.bytes), into.bytes};
      co_await call.op.team.compute.copy(into, from, call.op.stop);
    } else {
      const std::byte* there = call.team.private_send_of(member, call.number) + begin + at + done;
      call.domain.read_private(call.team.domain_rank(member), there, {into.data, into.bytes});
    }
    if (bytes > kBytesAtOnce) co_await Yield(call.op.team.loop, call.op.stop);
  }
}

// Chunk k of a block of `bytes` bytes.
struct Chunk {
  std::size_t at;
  std::size_t bytes;
  Chunk(std::size_t block, std::size_t part, std::uint64_t k) noexcept
      : at(std::min(block, k * part)), bytes(std::min(part, block - at)) {}
};

Task<void> fill(BlockExchange& run, Pipeline& pipeline, std::uint64_t k) {
  IntraCall& call = run.call;
  if (!run.staged(call.me()) || !run.sends(call.me())) co_return;
  co_await pipeline.await_free(IntraTeam::kCopied, k);
  for (int member = 0; member < call.size(); ++member) {
    const Extent block = run.outgoing(member);
    const Chunk chunk(block.count * run.element, run.part, k);
    if (member == call.me() || chunk.bytes == 0) continue;
    const Buffer from = call.op.send.slice(block.begin * run.element + chunk.at, chunk.bytes);
    const Buffer to{run.in_slot(pipeline, call.me(), member, k), chunk.bytes};
    co_await call.op.team.compute.copy(to, from, call.op.stop);
  }
  pipeline.finished(IntraTeam::kFilled, k);
}

Task<void> copy_out(BlockExchange& run, Pipeline& pipeline, std::uint64_t k) {
  IntraCall& call = run.call;
  for (int step = 1; step < call.size() && run.receives(call.me()); ++step) {
    const int member = (call.me() + step) % call.size();
    const Extent block = run.incoming(member);
    const Chunk chunk(block.count * run.element, run.part, k);
    if (chunk.bytes == 0 || !run.sends(member)) continue;
    if (!run.staged(member)) {
      if (run.in_place) co_await take(run, member, chunk.at, chunk.bytes);
      continue;
    }
    co_await pipeline.await(member, IntraTeam::kFilled, k);
    const Buffer to = call.op.recv.slice(block.begin * run.element + chunk.at, chunk.bytes);
    const Buffer from{run.in_slot(pipeline, member, call.me(), k), chunk.bytes};
    co_await call.op.team.compute.copy(to, from, call.op.stop);
  }
  pipeline.finished(IntraTeam::kCopied, k);
}

Task<void> take_own(BlockExchange& run) {
  const IntraCall& call = run.call;
  const Extent out = run.outgoing(call.me());
  const Extent in = run.incoming(call.me());
  if (run.in_place || in.count == 0) co_return;
  const Buffer from = call.op.send.slice(out.begin * run.element, out.count * run.element);
  const Buffer to = call.op.recv.slice(in.begin * run.element, in.count * run.element);
  if (from.data != to.data) co_await call.op.team.compute.copy(to, from, call.op.stop);
}

}  // namespace

Task<void> exchange_blocks(Operation& op) {
  IntraTeam& team = *op.team.host;
  const bool all = op.call.kind == Collective::kAlltoall;
  BlockExchange run{IntraCall(op, team.next_number()), all ? -1 : team.member_of(op.call.root), op.call.element_bytes(),
                    all && op.send.bytes > 0 && op.send.data == op.recv.data};
  IntraCall& call = run.call;
  if (op.call.uneven) write_table(run);
  co_await team.await_room(op.stop);
  post_arrival(run);
  co_await await_arrivals(op, call.number);
  require_lengths(run);
  constexpr std::size_t kLine = 64;
  const std::size_t shares = run.gathers() ? 1 : static_cast<std::size_t>(call.size());
  run.part = std::max(IntraTeam::kSlotBytes / shares / kLine * kLine, kLine);
  run.all_pull = !run.gathers() && run.longest_of_all() > run.part;
  for (int member = 0; member < call.size(); ++member) run.all_pull = run.all_pull && team.pulls(member, call.number);
  std::uint64_t chunks = 0;
  for (int member = 0; member < call.size(); ++member) {
    if (!run.staged(member)) continue;
    const std::uint64_t wanted = (run.longest(member) + run.part - 1) / run.part;
    chunks = std::max(chunks, wanted);
  }
  co_await take_own(run);
  for (int step = 1; step < call.size() && !run.in_place && run.receives(call.me()); ++step) {
    const int member = (call.me() + step) % call.size();
    if (!run.sends(member) || run.staged(member)) continue;
    co_await take(run, member, 0, run.incoming(member).count * run.element);
  }
  Pipeline pipeline(call, chunks);
  for (std::uint64_t step = 0; step < chunks + 1 && chunks > 0; ++step) {
    if (step < chunks) co_await fill(run, pipeline, step);
    if (step >= 1) co_await copy_out(run, pipeline, step - 1);
  }
  co_await part(op, call.number);
}

}  // namespace aiacc::intra

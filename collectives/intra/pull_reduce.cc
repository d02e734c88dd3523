#include "collectives/intra/pull_reduce.h"

#include <algorithm>
#include <vector>

namespace aiacc::intra {
namespace {

// The size of a piece: the pieces of all members together fit into a core's L2 cache and into the staging slots, which
// are unused here. A call of the kernel costs about half a microsecond.
constexpr std::size_t kPieceBytes = 64 << 10;
std::size_t piece_bytes(int members) noexcept {
  constexpr std::size_t kRoom = IntraTeam::kSlots * IntraTeam::kSlotBytes;
  return std::min(kPieceBytes, kRoom / static_cast<std::size_t>(members) / 64 * 64);
}
constexpr std::size_t kLeastPieceBytes = 4 << 10;

struct PullReduce {
  IntraCall& call;
  Slices slices;
  std::vector<Buffer> operands = {};
  std::size_t moved = 0;  // bytes since other operations could run

  std::size_t element() const noexcept { return call.op.call.element_bytes(); }
  Task<void> yield_after(std::size_t bytes) {
    moved += bytes;
    if (moved < kBytesAtOnce) co_return;
    moved = 0;
    co_await Yield(call.op.team.loop, call.op.stop);
  }
};

Task<void> reduce_my_slice(PullReduce& run) {
  IntraCall& call = run.call;
  const int me = call.me();
  const std::size_t begin = run.slices.begin(me) * run.element();
  const std::size_t bytes = run.slices.length(me) * run.element();
  const std::size_t piece = piece_bytes(call.size()) / run.element() * run.element();
  // All slots are free: every member that arrived has left the operation before.
  std::byte* scratch = call.team.slot(me, 0);
  for (std::size_t done = 0; done < bytes; done += piece) {
    const std::size_t now = std::min(piece, bytes - done);
    run.operands.clear();
    for (int member = 0; member < call.size(); ++member) {
      Buffer from{scratch + static_cast<std::size_t>(member) * piece, now};
      if (member == me) {
        from = call.op.send.slice(begin + done, now);
      } else if (const IntraTeam::Place place = call.team.send_place_of(member, call.number)) {
        from.data = call.view(member, *place + begin + done, now);
      } else {
        const std::byte* there = call.team.private_send_of(member, call.number) + begin + done;
        call.domain.read_private(call.team.domain_rank(member), there, {from.data, now});
      }
      run.operands.push_back(from);
    }
    const Buffer result = call.op.recv.slice(begin + done, now);
    co_await call.op.team.compute.reduce({&result, 1}, run.operands, now / run.element(), call.op.call.reduction,
                                         {.ranks = call.size()}, call.op.stop);
    co_await run.yield_after(now * static_cast<std::size_t>(call.size()));
  }
}

Task<void> pull_slice_of(PullReduce& run, int member) {
  IntraCall& call = run.call;
  const std::size_t begin = run.slices.begin(member) * run.element();
  const std::size_t bytes = run.slices.length(member) * run.element();
  for (std::size_t done = 0; done < bytes; done += kBytesAtOnce) {
    const Buffer into = call.op.recv.slice(begin + done, std::min(kBytesAtOnce, bytes - done));
    if (const IntraTeam::Place place = call.team.recv_place_of(member, call.number)) {
      const Buffer from{call.view(member, *place + begin + done, into.bytes), into.bytes};
      co_await call.op.team.compute.copy(into, from, call.op.stop);
    } else {
      const std::byte* there = call.team.private_recv_of(member, call.number) + begin + done;
      call.domain.read_private(call.team.domain_rank(member), there, {into.data, into.bytes});
    }
    co_await run.yield_after(into.bytes);
  }
}

}  // namespace

bool can_pull_reduce(const IntraCall& call) {
  if (call.op.call.kind != Collective::kAllreduce) return false;
  if (piece_bytes(call.size()) < kLeastPieceBytes) return false;
  for (int member = 0; member < call.size(); ++member) {
    if (!call.team.pulls(member, call.number)) return false;
  }
  return true;
}

Task<void> pull_reduce(IntraCall call) {
  PullReduce run{call, Slices(call.op.call.count, call.op.call.element_bytes(), call.size())};
  co_await reduce_my_slice(run);
  call.team.publish(IntraTeam::kPullable, call.number);
  for (int step = 1; step < call.size(); ++step) {
    const int member = (call.me() + step) % call.size();
    const FlagRef flag = call.team.progress_flag(member, IntraTeam::kPullable);
    co_await call.domain.at_least(flag, call.number, call.op.stop);
    co_await pull_slice_of(run, member);
  }
  co_await part(call.op, call.number);
}

}  // namespace aiacc::intra

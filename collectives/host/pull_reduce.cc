#include "collectives/host/pull_reduce.h"

#include <algorithm>
#include <vector>

namespace aiacc::host {
namespace {

// Pieces of what is reduced: all members' fit into a core's L2 cache, and into the slots that staging has no use for now. A
// call of the kernel costs about half a microsecond.
constexpr std::size_t kPieceBytes = 64 << 10;
std::size_t piece_bytes(int members) noexcept {
  constexpr std::size_t kRoom = HostTeam::kSlots * HostTeam::kSlotBytes;
  return std::min(kPieceBytes, kRoom / static_cast<std::size_t>(members) / 64 * 64);
}
constexpr std::size_t kLeastPieceBytes = 4 << 10;
// A member lets other operations of its lane run after so many bytes, a fifth of a millisecond.
constexpr std::size_t kBytesAtOnce = 1 << 20;

struct PullReduce {
  HostCall& call;
  Slices slices;
  std::vector<Buffer> operands = {};
  std::size_t moved = 0;  // since others could run

  std::size_t element() const noexcept { return call.op.call.element_bytes(); }
  Task<void> breathe(std::size_t bytes) {
    moved += bytes;
    if (moved < kBytesAtOnce) co_return;
    moved = 0;
    co_await Yield(call.op.team.loop, call.op.stop);
  }
};

Task<void> reduce_my_slice(PullReduce& run) {
  HostCall& call = run.call;
  const int me = call.me();
  const std::size_t begin = run.slices.begin(me) * run.element();
  const std::size_t bytes = run.slices.length(me) * run.element();
  const std::size_t piece = piece_bytes(call.size()) / run.element() * run.element();
  std::byte* scratch = call.team.slot(me, 0);  // all are free: whoever arrived has left the operation before
  for (std::size_t done = 0; done < bytes; done += piece) {
    const std::size_t now = std::min(piece, bytes - done);
    run.operands.clear();
    for (int member = 0; member < call.size(); ++member) {
      std::byte* from = scratch + static_cast<std::size_t>(member) * piece;
      if (member == me) {
        from = call.op.send.data + begin + done;
      } else if (const HostTeam::Place place = call.team.send_place_of(member, call.number)) {
        from = call.view(member, *place + begin + done);
      } else {
        const std::byte* there = call.team.private_send_of(member, call.number) + begin + done;
        call.domain.read_private(call.team.domain_rank(member), there, {from, now});
      }
      run.operands.push_back({from, now});
    }
    const Buffer result = call.op.recv.slice(begin + done, now);
    co_await call.op.team.compute.reduce({&result, 1}, run.operands, now / run.element(), call.op.call.reduction,
                                         {.ranks = call.size()});
    co_await run.breathe(now * static_cast<std::size_t>(call.size()));
  }
}

Task<void> pull_slice_of(PullReduce& run, int member) {
  HostCall& call = run.call;
  const std::size_t begin = run.slices.begin(member) * run.element();
  const std::size_t bytes = run.slices.length(member) * run.element();
  for (std::size_t done = 0; done < bytes; done += kBytesAtOnce) {
    const Buffer into = call.op.recv.slice(begin + done, std::min(kBytesAtOnce, bytes - done));
    if (const HostTeam::Place place = call.team.recv_place_of(member, call.number)) {
      const Buffer from{call.view(member, *place + begin + done), into.bytes};
      co_await call.op.team.compute.copy(into, from);
    } else {
      const std::byte* there = call.team.private_recv_of(member, call.number) + begin + done;
      call.domain.read_private(call.team.domain_rank(member), there, {into.data, into.bytes});
    }
    co_await run.breathe(into.bytes);
  }
}

}  // namespace

bool can_pull_reduce(const HostCall& call) {
  if (call.op.call.kind != Collective::kAllreduce) return false;
  if (piece_bytes(call.size()) < kLeastPieceBytes) return false;
  for (int member = 0; member < call.size(); ++member) {
    if (!call.team.pulls(member, call.number)) return false;
  }
  return true;
}

Task<void> pull_reduce(HostCall call) {
  PullReduce run{call, Slices(call.op.call.count, call.op.call.element_bytes(), call.size())};
  co_await reduce_my_slice(run);
  call.team.publish(HostTeam::kPullable, call.number);
  for (int step = 1; step < call.size(); ++step) {
    const int member = (call.me() + step) % call.size();
    const FlagRef flag = call.team.progress_flag(member, HostTeam::kPullable);
    co_await call.domain.at_least(flag, call.number, call.op.stop);
    co_await pull_slice_of(run, member);
  }
  co_await part(call.op, call.number);
}

}  // namespace aiacc::host

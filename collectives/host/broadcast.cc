#include "collectives/host/broadcast.h"

#include <algorithm>

#include "collectives/host/staging.h"

namespace aiacc::host {
namespace {

Task<void> fill_all(HostCall& call, Pipeline& pipeline) {
  for (std::uint64_t k = 0; k < pipeline.chunks(); ++k) {
    co_await pipeline.await_free(HostTeam::kCopied, k);
    const std::size_t at = k * HostTeam::kSlotBytes;
    const Buffer from = call.op.send.slice(at, std::min(HostTeam::kSlotBytes, call.op.send.bytes - at));
    const Buffer to{pipeline.slot(call.me(), k), from.bytes};
    co_await call.op.team.compute.copy_for_others(to, from);
    pipeline.finished(HostTeam::kFilled, k);
  }
}

Task<void> copy_all(HostCall& call, Pipeline& pipeline, int root) {
  for (std::uint64_t k = 0; k < pipeline.chunks(); ++k) {
    co_await pipeline.await(root, HostTeam::kFilled, k);
    const std::size_t at = k * HostTeam::kSlotBytes;
    const Buffer to = call.op.recv.slice(at, std::min(HostTeam::kSlotBytes, call.op.recv.bytes - at));
    const Buffer from{pipeline.slot(root, k), to.bytes};
    co_await call.op.team.compute.copy(to, from);
    pipeline.finished(HostTeam::kCopied, k);
  }
}

}  // namespace

Task<void> broadcast(HostCall call) {
  const int root = call.team.member_of(call.op.call.root);
  const std::size_t bytes = call.op.call.bytes();
  if (const HostTeam::Place place = call.team.send_place_of(root, call.number)) {
    const Buffer from{call.view(root, *place), bytes};
    if (call.me() != root) co_await call.op.team.compute.copy(call.op.recv, from);
  } else {
    Pipeline pipeline(call, (bytes + HostTeam::kSlotBytes - 1) / HostTeam::kSlotBytes);
    if (call.me() == root) {
      co_await fill_all(call, pipeline);
    } else {
      co_await copy_all(call, pipeline, root);
    }
  }
  co_await part(call.op, call.number);
}

}  // namespace aiacc::host

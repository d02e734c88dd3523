#include "collectives/intra/broadcast.h"

#include <algorithm>

#include "collectives/intra/staging.h"

namespace aiacc::intra {
namespace {

Task<void> fill_all(IntraCall& call, Pipeline& pipeline) {
  for (std::uint64_t k = 0; k < pipeline.chunks(); ++k) {
    co_await pipeline.await_free(IntraTeam::kCopied, k);
    const std::size_t at = k * IntraTeam::kSlotBytes;
    const Buffer from = call.op.send.slice(at, std::min(IntraTeam::kSlotBytes, call.op.send.bytes - at));
    const Buffer to{pipeline.slot(call.me(), k), from.bytes};
    co_await call.op.team.compute.copy(to, from, call.op.stop);
    pipeline.finished(IntraTeam::kFilled, k);
  }
}

Task<void> copy_all(IntraCall& call, Pipeline& pipeline, int root) {
  for (std::uint64_t k = 0; k < pipeline.chunks(); ++k) {
    co_await pipeline.await(root, IntraTeam::kFilled, k);
    const std::size_t at = k * IntraTeam::kSlotBytes;
    const Buffer to = call.op.recv.slice(at, std::min(IntraTeam::kSlotBytes, call.op.recv.bytes - at));
    const Buffer from{pipeline.slot(root, k), to.bytes};
    co_await call.op.team.compute.copy(to, from, call.op.stop);
    pipeline.finished(IntraTeam::kCopied, k);
  }
}

}  // namespace

Task<void> broadcast(IntraCall call) {
  const int root = call.team.member_of(call.op.call.root);
  const std::size_t bytes = call.op.call.bytes();
  if (const IntraTeam::Place place = call.team.send_place_of(root, call.number)) {
    const Buffer from{call.view(root, *place, bytes), bytes};
    if (call.me() != root) co_await call.op.team.compute.copy(call.op.recv, from, call.op.stop);
  } else {
    Pipeline pipeline(call, (bytes + IntraTeam::kSlotBytes - 1) / IntraTeam::kSlotBytes);
    if (call.me() == root) {
      co_await fill_all(call, pipeline);
    } else {
      co_await copy_all(call, pipeline, root);
    }
  }
  co_await part(call.op, call.number);
}

}  // namespace aiacc::intra

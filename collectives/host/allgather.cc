#include "collectives/host/allgather.h"

#include <algorithm>

#include "collectives/host/staging.h"

namespace aiacc::host {
namespace {

struct Allgather {
  HostCall& call;
  Pipeline pipeline;

  // Of the result, in bytes.
  Buffer block_of(int member) const noexcept {
    const Extent block = call.op.call.block(member);
    const std::size_t element = call.op.call.element_bytes();
    return call.op.recv.slice(block.begin * element, block.count * element);
  }
};

// Chunk k of a block, empty where the block has ended.
Buffer chunk_of(const Buffer& block, std::uint64_t k) noexcept {
  const std::size_t at = std::min(block.bytes, k * HostTeam::kSlotBytes);
  return block.slice(at, std::min(HostTeam::kSlotBytes, block.bytes - at));
}

Task<void> fill(Allgather& run, std::uint64_t k) {
  HostCall& call = run.call;
  if (call.team.send_place_of(call.me(), call.number)) co_return;
  co_await run.pipeline.await_free(HostTeam::kCopied, k);
  const Buffer from = chunk_of(call.op.send, k);
  const Buffer to{run.pipeline.slot(call.me(), k), from.bytes};
  co_await call.op.team.compute.copy_for_others(to, from);
  run.pipeline.finished(HostTeam::kFilled, k);
}

Task<void> copy_out(Allgather& run, std::uint64_t k) {
  HostCall& call = run.call;
  for (int step = 1; step < call.size(); ++step) {
    const int member = (call.me() + step) % call.size();
    const Buffer to = chunk_of(run.block_of(member), k);
    if (to.bytes == 0) continue;
    Buffer from{nullptr, to.bytes};
    if (const HostTeam::Place place = call.team.send_place_of(member, call.number)) {
      from.data = call.view(member, *place + k * HostTeam::kSlotBytes);
    } else {
      co_await run.pipeline.await(member, HostTeam::kFilled, k);
      from.data = run.pipeline.slot(member, k);
    }
    co_await call.op.team.compute.copy(to, from);
  }
  run.pipeline.finished(HostTeam::kCopied, k);
}

}  // namespace

Task<void> allgather(HostCall call) {
  std::size_t longest = 0;
  for (int member = 0; member < call.size(); ++member)
    longest = std::max(longest, call.op.call.block(member).count * call.op.call.element_bytes());
  const std::uint64_t chunks = (longest + HostTeam::kSlotBytes - 1) / HostTeam::kSlotBytes;
  Allgather run{call, Pipeline(call, chunks)};
  const Buffer own = run.block_of(call.me());
  if (own.bytes > 0 && own.data != call.op.send.data) co_await call.op.team.compute.copy(own, call.op.send);
  for (std::uint64_t step = 0; step < chunks + 1; ++step) {
    if (step < chunks) co_await fill(run, step);
    if (step >= 1) co_await copy_out(run, step - 1);
  }
  co_await part(call.op, call.number);
}

}  // namespace aiacc::host

#include "collectives/intra/allgather.h"

#include <algorithm>

#include "collectives/intra/staging.h"

namespace aiacc::intra {
namespace {

struct Allgather {
  IntraCall& call;
  Pipeline pipeline;

  // The member's block of the result.
  Buffer block_of(int member) const noexcept {
    const Extent block = call.op.call.block(member);
    const std::size_t element = call.op.call.element_bytes();
    return call.op.recv.slice(block.begin * element, block.count * element);
  }
};

// Chunk k of a block; empty beyond its end.
Buffer chunk_of(const Buffer& block, std::uint64_t k) noexcept {
  const std::size_t at = std::min(block.bytes, k * IntraTeam::kSlotBytes);
  return block.slice(at, std::min(IntraTeam::kSlotBytes, block.bytes - at));
}

Task<void> fill(Allgather& run, std::uint64_t k) {
  IntraCall& call = run.call;
  if (call.team.send_place_of(call.me(), call.number)) co_return;
  co_await run.pipeline.await_free(IntraTeam::kCopied, k);
  const Buffer from = chunk_of(call.op.send, k);
  const Buffer to{run.pipeline.slot(call.me(), k), from.bytes};
  co_await call.op.team.compute.copy(to, from, call.op.stop);
  run.pipeline.finished(IntraTeam::kFilled, k);
}

Task<void> copy_out(Allgather& run, std::uint64_t k) {
  IntraCall& call = run.call;
  for (int step = 1; step < call.size(); ++step) {
    const int member = (call.me() + step) % call.size();
    const Buffer to = chunk_of(run.block_of(member), k);
    if (to.bytes == 0) continue;
    Buffer from{nullptr, to.bytes};
    if (const IntraTeam::Place place = call.team.send_place_of(member, call.number)) {
      from.data = call.view(member, *place + k * IntraTeam::kSlotBytes, to.bytes);
    } else {
      co_await run.pipeline.await(member, IntraTeam::kFilled, k);
      from.data = run.pipeline.slot(member, k);
    }
    co_await call.op.team.compute.copy(to, from, call.op.stop);
  }
  run.pipeline.finished(IntraTeam::kCopied, k);
}

}  // namespace

Task<void> allgather(IntraCall call) {
  std::size_t longest = 0;
  for (int member = 0; member < call.size(); ++member)
    longest = std::max(longest, call.op.call.block(member).count * call.op.call.element_bytes());
  const std::uint64_t chunks = (longest + IntraTeam::kSlotBytes - 1) / IntraTeam::kSlotBytes;
  Allgather run{call, Pipeline(call, chunks)};
  const Buffer own = run.block_of(call.me());
  if (own.bytes > 0 && own.data != call.op.send.data)
    co_await call.op.team.compute.copy(own, call.op.send, call.op.stop);
  for (std::uint64_t step = 0; step < chunks + 1; ++step) {
    if (step < chunks) co_await fill(run, step);
    if (step >= 1) co_await copy_out(run, step - 1);
  }
  co_await part(call.op, call.number);
}

}  // namespace aiacc::intra

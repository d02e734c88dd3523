#include "collectives/host/allgather.h"

#include <algorithm>

#include "collectives/host/staging.h"

namespace aiacc::host {
namespace {

struct Allgather {
  HostCall& call;
  Pipeline pipeline;
  std::size_t bytes;  // of one member

  Buffer chunk_of(const Buffer& buffer, std::uint64_t k) const noexcept {
    const std::size_t at = k * HostTeam::kSlotBytes;
    return buffer.slice(at, std::min(HostTeam::kSlotBytes, bytes - at));
  }
};

Task<void> fill(Allgather& run, std::uint64_t k) {
  HostCall& call = run.call;
  if (call.team.send_place_of(call.me(), call.number)) co_return;
  co_await run.pipeline.await_free(HostTeam::kCopied, k);
  const Buffer from = run.chunk_of(call.op.send, k);
  const Buffer to{run.pipeline.slot(call.me(), k), from.bytes};
  co_await call.op.team.compute.copy_for_others(to, from);
  run.pipeline.finished(HostTeam::kFilled, k);
}

Task<void> copy_out(Allgather& run, std::uint64_t k) {
  HostCall& call = run.call;
  for (int step = 1; step < call.size(); ++step) {
    const int member = (call.me() + step) % call.size();
    const Buffer whole = call.op.recv.slice(run.bytes * static_cast<std::size_t>(member), run.bytes);
    const Buffer to = run.chunk_of(whole, k);
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
  const std::size_t bytes = call.op.call.bytes();
  const std::uint64_t chunks = (bytes + HostTeam::kSlotBytes - 1) / HostTeam::kSlotBytes;
  Allgather run{call, Pipeline(call, chunks), bytes};
  const Buffer own = call.op.recv.slice(bytes * static_cast<std::size_t>(call.me()), bytes);
  if (bytes > 0 && own.data != call.op.send.data) co_await call.op.team.compute.copy(own, call.op.send);
  for (std::uint64_t step = 0; step < chunks + 1; ++step) {
    if (step < chunks) co_await fill(run, step);
    if (step >= 1) co_await copy_out(run, step - 1);
  }
  co_await part(call.op, call.number);
}

}  // namespace aiacc::host

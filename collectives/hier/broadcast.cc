#include "collectives/hier/broadcast.h"

#include <algorithm>
#include <deque>

#include "base/task/scope.h"
#include "collectives/hier/select.h"
#include "collectives/inter/chain_broadcast.h"
#include "collectives/inter/double_tree.h"
#include "collectives/inter/inter_call.h"

namespace aiacc::hier {
namespace {

// The payload is divided into slices. While one slice is between hosts, the previous one is distributed on each host.
struct Broadcast {
  HierCall& call;
  Buffer buffer;
  inter::Parts slices;
  std::deque<Event> came = {};  // by slice: it has arrived at this host's representative

  bool is_root() const noexcept { return call.op.team.rank == call.op.call.root; }
  bool represents() const noexcept { return call.op.team.rank == representative(); }
  int representative() const noexcept { return call.representative(call.host, call.op.call.root); }
  Buffer part(std::size_t slice) const noexcept {
    const std::size_t element = call.op.call.element_bytes();
    return buffer.slice(slices.offset(slice) * element, slices.length(slice) * element);
  }
  // An upper bound of the steps that the algorithm between hosts takes for a slice.
  std::uint64_t steps() const noexcept {
    return std::max(inter::pieces_of(2 * kSliceBytes, inter::kShortestChainSegment),
                    inter::double_tree_steps(kSliceBytes));
  }
};

Task<void> exchange(Broadcast& run, std::size_t slice, Stop& stop) {
  Call between = run.call.op.call;
  between.count = run.slices.length(slice);
  const Buffer part = run.part(slice);
  co_await run.call.between_representatives(between, part, part, slice * run.steps(), stop);
  run.came[slice].set();
}

Task<void> give_here(Broadcast& run, std::size_t slice, Stop& stop) {
  if (run.represents() && !run.is_root()) co_await run.came[slice].wait(stop);
  Call here = run.call.op.call;
  here.count = run.slices.length(slice);
  here.root = run.representative();
  const Buffer nothing;
  const Buffer part = run.part(slice);
  co_await run.call.on_host(here, run.represents() ? part : nothing, run.represents() ? nothing : part, stop);
}

Task<void> run_slices(Broadcast& run, Scope& scope) {
  const std::size_t slices = run.slices.parts;
  for (std::size_t step = 0; step < slices + kSlicesBetween; ++step) {
    if (step < slices && run.represents()) scope.spawn(exchange(run, step, scope.stop()));
    if (step >= kSlicesBetween) co_await give_here(run, step - kSlicesBetween, scope.stop());
  }
}

}  // namespace

Task<void> broadcast(HierCall& call) {
  Operation& op = call.op;
  // The caller may pass the buffer as send or as recv.
  Buffer buffer = op.recv.bytes > 0 ? op.recv : op.send;
  if (op.team.rank == op.call.root && op.send.bytes > 0) buffer = op.send;
  const std::size_t slices = inter::pieces_of(op.call.bytes(), kSliceBytes);
  Broadcast run{call, buffer, inter::Parts{op.call.count, slices}};
  for (std::size_t slice = 0; slice < slices; ++slice) run.came.emplace_back(op.team.loop);
  if (slices == 1) {
    if (run.represents()) co_await exchange(run, 0, op.stop);
    co_await give_here(run, 0, op.stop);
    co_return;
  }
  Scope scope(op.team.loop, op.stop);
  scope.spawn(run_slices(run, scope));
  co_await scope.join();
}

}  // namespace aiacc::hier

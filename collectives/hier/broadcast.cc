#include "collectives/hier/broadcast.h"

#include <algorithm>

#include "collectives/hier/slices.h"
#include "collectives/inter/chain_broadcast.h"
#include "collectives/inter/double_tree.h"

namespace aiacc::hier {
namespace {

struct Broadcast {
  HierCall& call;
  Buffer buffer;
  inter::Parts slices;

  bool is_root() const noexcept { return call.op.team.rank == call.op.call.root; }
  bool exchanges() const noexcept { return call.op.team.rank == representative(); }
  bool waits() const noexcept { return exchanges() && !is_root(); }
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

  Task<void> before(std::size_t, Stop&) { co_return; }
  Task<void> between(std::size_t slice, Stop& stop) {
    Call those = call.op.call;
    those.count = slices.length(slice);
    const Buffer its = part(slice);
    co_await call.between_representatives(those, its, its, {}, slice * steps(), stop);
  }
  Task<void> after(std::size_t slice, Stop& stop) {
    Call here = call.op.call;
    here.count = slices.length(slice);
    here.root = representative();
    const Buffer nothing;
    const Buffer its = part(slice);
    co_await call.on_host(here, exchanges() ? its : nothing, exchanges() ? nothing : its, stop);
  }
};

}  // namespace

Task<void> broadcast(HierCall& call) {
  Operation& op = call.op;
  // The caller may pass the buffer as send or as recv.
  Buffer buffer = op.recv.bytes > 0 ? op.recv : op.send;
  if (op.team.rank == op.call.root && op.send.bytes > 0) buffer = op.send;
  const std::size_t slices = inter::pieces_of(op.call.bytes(), kSliceBytes);
  Broadcast run{call, buffer, inter::Parts{op.call.count, slices}};
  co_await in_slices(run, op, slices);
}

}  // namespace aiacc::hier

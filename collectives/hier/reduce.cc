#include "collectives/hier/reduce.h"

#include <algorithm>
#include <deque>

#include "collectives/hier/slices.h"
#include "collectives/inter/double_tree.h"

namespace aiacc::hier {
namespace {

struct Reduce {
  HierCall& call;
  inter::Parts slices;
  // The host's sums, for the slices in progress; none: they are in the result, or there is one input.
  std::deque<inter::Scratch> partials = {};

  int representative() const noexcept { return call.representative(call.host, call.op.call.root); }
  bool is_root() const noexcept { return call.op.team.rank == call.op.call.root; }
  bool exchanges() const noexcept { return call.op.team.rank == representative(); }
  bool waits() const noexcept { return exchanges(); }
  Buffer part_of(const Buffer& buffer, std::size_t slice) const noexcept {
    const std::size_t element = call.op.call.element_bytes();
    return buffer.slice(slices.offset(slice) * element, slices.length(slice) * element);
  }
  Buffer result(std::size_t slice) const noexcept { return is_root() ? part_of(call.op.recv, slice) : Buffer{}; }
  // The place of the host's sum.
  Buffer sum(std::size_t slice) const noexcept {
    if (!partials.empty()) {
      return partials[slice % partials.size()].buffer().slice(0, slices.length(slice) * call.partial_bytes());
    }
    return is_root() ? result(slice) : part_of(call.op.send, slice);
  }
  // An upper bound of the steps that any algorithm takes for a slice.
  std::uint64_t steps() const noexcept {
    const std::size_t longest = slices.length(0) * call.partial_bytes();
    return std::max<std::uint64_t>(inter::pieces_of(longest, inter::kSliceBytes) + 1,
                                   inter::double_tree_steps(longest));
  }

  Task<void> before(std::size_t slice, Stop& stop) {
    Call here = call.op.call;
    here.count = slices.length(slice);
    here.root = representative();
    here.reduction = call.reduction_on_host();
    const Buffer nothing;
    co_await call.on_host(here, part_of(call.op.send, slice), exchanges() ? sum(slice) : nothing, stop);
  }
  Task<void> between(std::size_t slice, Stop& stop) {
    Call those = call.op.call;
    those.count = slices.length(slice);
    those.reduction = call.reduction_between();
    const Buffer own = call.alone() && !call.has_partials() ? part_of(call.op.send, slice) : sum(slice);
    co_await call.between_representatives(those, own, result(slice), {}, slice * steps(), stop);
  }
  Task<void> after(std::size_t, Stop&) { co_return; }
};

}  // namespace

Task<void> reduce(HierCall& call) {
  Operation& op = call.op;
  if (op.call.count == 0) co_return;
  const std::size_t slices = inter::pieces_of(op.call.bytes(), kSliceBytes);
  Reduce run{call, inter::Parts{op.call.count, slices}};
  // kSlicesBetween slices are between hosts while one more is reduced on this host.
  const bool in_scratch = run.exchanges() && (call.has_partials() || (!run.is_root() && !call.alone()));
  for (std::size_t i = 0; in_scratch && i < std::min(slices, kSlicesBetween + 1); ++i) {
    run.partials.emplace_back(op, run.slices.length(0) * call.partial_bytes());
  }
  co_await in_slices(run, op, slices);
}

}  // namespace aiacc::hier

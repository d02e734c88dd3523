#include "collectives/inter/gather.h"

#include <cmath>

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

struct Rooted {
  InterCall call;
  bool gathers;
};

// The root's exchanges with ranks root + index + 1, root + index + 1 + slots, … (modulo n).
Task<void> slot(Rooted& run, std::size_t index, std::size_t slots, Stop& stop) {
  InterCall& call = run.call;
  const int n = call.size();
  for (int distance = static_cast<int>(index) + 1; distance < n; distance += static_cast<int>(slots)) {
    const int position = (call.rank() + distance) % n;
    if (call.skips(position)) continue;
    const Buffer block = call.part_of(run.gathers ? call.op.recv : call.op.send, call.op.call.block(position));
    if (run.gathers) {
      co_await call.recv(position, 0, block, stop);
    } else {
      co_await call.send(position, 0, block, stop);
    }
  }
}

Task<void> run_rooted(Rooted& run) {
  InterCall& call = run.call;
  Operation& op = call.op;
  if (!op.call.uneven && op.call.count == 0) co_return;
  const int root = call.root();
  if (call.rank() != root) {
    if (call.skips(root)) co_return;
    if (run.gathers) {
      co_await call.send(root, 0, op.send, op.stop);
    } else {
      co_await call.recv(root, 0, op.recv, op.stop);
    }
    co_return;
  }
  if (!call.skips(root)) {
    const Buffer own = call.part_of(run.gathers ? op.recv : op.send, op.call.block(root));
    const Buffer to = run.gathers ? own : op.recv;
    const Buffer from = run.gathers ? op.send : own;
    if (to.data != from.data || to.data == nullptr) co_await call.compute().copy(to, from, op.stop);
  }
  if (call.size() == 1) co_return;
  co_await side_by_side(run, std::min<std::size_t>(kSlots, static_cast<std::size_t>(call.size() - 1)), &slot);
}

}  // namespace

Task<void> gather(Operation& op) {
  Rooted run{InterCall(op, Algorithm::kGather), true};
  co_await run_rooted(run);
}

Task<void> scatter(Operation& op) {
  Rooted run{InterCall(op, Algorithm::kScatter), false};
  co_await run_rooted(run);
}

namespace {

// Eager messages wait for nobody.
Cost linear_gather_cost(const Shape& shape) noexcept {
  const double others = shape.ranks - 1, bytes = static_cast<double>(shape.bytes);
  const double latencies = latencies_of(bytes);
  return {.latencies = latencies > 1 ? std::ceil(others / kSlots) * latencies : 1,
          .messages = others,
          .bytes = others * bytes,
          .touched = 2 * bytes};
}

}  // namespace

constexpr AlgorithmInfo kLinearGatherInfo{Collective::kGather, "linear", &no_obstacle, &linear_gather_cost, &gather};
constexpr AlgorithmInfo kLinearScatterInfo{Collective::kScatter, "linear", &no_obstacle, &linear_gather_cost, &scatter};

}  // namespace aiacc::inter

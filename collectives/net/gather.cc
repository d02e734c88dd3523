#include "collectives/net/gather.h"

#include "collectives/net/net_call.h"

namespace aiacc::net {
namespace {

struct Rooted {
  NetCall call;
  bool gathers;
};

// The root's exchanges with ranks index + 1, index + 1 + lanes … places behind it.
Task<void> lane(Rooted& run, std::size_t index, std::size_t lanes, Stop& stop) {
  NetCall& call = run.call;
  const int n = call.size();
  for (int distance = static_cast<int>(index) + 1; distance < n; distance += static_cast<int>(lanes)) {
    const int place = (call.rank() + distance) % n;
    if (call.skips(place)) continue;
    const Buffer block = call.part_of(run.gathers ? call.op.recv : call.op.send, call.op.call.block(place));
    if (run.gathers) {
      co_await call.recv(place, 0, block, stop);
    } else {
      co_await call.send(place, 0, block, stop);
    }
  }
}

Task<void> run_rooted(Rooted& run) {
  NetCall& call = run.call;
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
    if (to.data != from.data || to.data == nullptr) co_await call.compute().copy(to, from);
  }
  if (call.size() == 1) co_return;
  co_await side_by_side(run, std::min<std::size_t>(kLanes, static_cast<std::size_t>(call.size() - 1)), &lane);
}

}  // namespace

Task<void> gather(Operation& op) {
  Rooted run{NetCall(op, Algorithm::kGather), true};
  co_await run_rooted(run);
}

Task<void> scatter(Operation& op) {
  Rooted run{NetCall(op, Algorithm::kScatter), false};
  co_await run_rooted(run);
}

}  // namespace aiacc::net

#include "collectives/inter/dissemination_barrier.h"

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {

Task<void> dissemination_barrier(Operation& op) {
  const int n = ranks_in(op);
  if (n == 1) co_return;
  InterCall call(op, Algorithm::kBarrier);
  std::uint64_t round = 0;
  for (int distance = 1; distance < n; distance *= 2, ++round) {
    const int to = (call.rank() + distance) % n;
    const int from = (call.rank() - distance + n) % n;
    co_await call.send_recv(to, Buffer{}, from, Buffer{}, round, op.stop);
  }
}

namespace {

Cost dissemination_barrier_cost(const Shape& shape) noexcept {
  const double rounds = rounds_among(shape.ranks);
  return {.latencies = rounds, .messages = 2 * rounds};
}

}  // namespace

constexpr AlgorithmInfo kDisseminationBarrierInfo{Collective::kBarrier, "dissemination", &no_obstacle,
                                                  &dissemination_barrier_cost, &dissemination_barrier};

}  // namespace aiacc::inter

#include "collectives/inter/alltoall.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

struct Alltoall {
  InterCall call;
  bool in_place;
};

// Exchanges the blocks with `partner`, which both have the same length. The block travels as one message, as it does to and from a
// rank that is not in place: neither knows that of the other.
Task<void> swap_blocks(Alltoall& run, int partner, std::optional<Scratch>& copy, Stop& stop) {
  InterCall& call = run.call;
  const Buffer block = call.part_of(call.op.recv, call.op.call.recv_block(partner));
  if (!copy) copy.emplace(call.op, block.bytes);
  co_await call.compute().copy(copy->buffer(), block, stop);
  co_await call.send_recv(partner, copy->buffer(), partner, block, 0, stop);
}

Task<void> slot(Alltoall& run, std::size_t index, std::size_t slots, Stop& stop) {
  InterCall& call = run.call;
  const int n = call.size();
  std::optional<Scratch> copy;  // of a block in place: all have the same length
  for (int step = static_cast<int>(index); step < n; step += static_cast<int>(slots)) {
    const int partner = (step - call.rank() + n) % n;
    if (partner == call.rank() || call.skips(partner)) continue;
    if (run.in_place) {
      co_await swap_blocks(run, partner, copy, stop);
      continue;
    }
    // An empty block is sent too, so that a partner that expects another length detects the mismatch.
    const Buffer sent = call.part_of(call.op.send, call.op.call.block(partner));
    const Buffer arrived = call.part_of(call.op.recv, call.op.call.recv_block(partner));
    co_await call.send_recv(partner, sent, partner, arrived, 0, stop);
  }
}

}  // namespace

Task<void> alltoall(Operation& op) {
  Alltoall run{InterCall(op, Algorithm::kAlltoall),
               !op.call.uneven && op.send.data == op.recv.data && op.send.data != nullptr};
  InterCall& call = run.call;
  if (!op.call.uneven && op.call.count == 0) co_return;
  if (!run.in_place && !call.skips(call.rank())) {
    const Buffer from = call.part_of(op.send, op.call.block(call.rank()));
    const Buffer to = call.part_of(op.recv, op.call.recv_block(call.rank()));
    co_await call.compute().copy(to, from, op.stop);
  }
  // Long blocks in place go one at a time, which bounds the scratch memory. Partners that run more wait for the oldest first.
  const bool one_at_a_time = run.in_place && op.call.bytes() > kSliceBytes;
  const std::size_t slots = one_at_a_time ? 1 : std::min<std::size_t>(kSlots, static_cast<std::size_t>(call.size()));
  co_await side_by_side(run, slots, &slot);
}

namespace {

Cost pairwise_alltoall_cost(const Shape& shape) noexcept {
  const double others = shape.ranks - 1, bytes = static_cast<double>(shape.bytes);
  return {.latencies = std::ceil(others / kSlots) * latencies_of(bytes),
          .messages = 2 * others,
          .bytes = others * bytes,
          .touched = 2 * bytes};
}

}  // namespace

constexpr AlgorithmInfo kPairwiseAlltoallInfo{Collective::kAlltoall, "pairwise", &no_obstacle, &pairwise_alltoall_cost,
                                              &alltoall};

}  // namespace aiacc::inter

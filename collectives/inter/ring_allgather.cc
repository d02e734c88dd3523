#include "collectives/inter/ring_allgather.h"

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

struct AllgatherRing {
  InterCall call;
  Blocks blocks;
};

Task<void> slot(AllgatherRing& ring, std::size_t index, std::size_t slots, Stop& stop) {
  InterCall& call = ring.call;
  const int n = call.size();
  const std::size_t bytes = call.element_bytes();
  for (; index < ring.blocks.segments(); index += slots) {
    const auto part_of = [&](int block) {
      const Extent segment = ring.blocks.segment_of(block, index);
      return call.op.recv.slice((ring.blocks.of(block).begin + segment.begin) * bytes, segment.count * bytes);
    };
    const int right = (call.rank() + 1) % n;
    for (int k = 0; k < n - 1; ++k) {
      const Buffer sent = part_of((call.rank() - k + n) % n);
      const Buffer arrived = part_of((call.rank() - k - 1 + n) % n);
      const std::uint64_t step = index * static_cast<std::size_t>(n) + static_cast<std::size_t>(k);
      if (k < n - 2) call.send_early_rts(right, step + 1, arrived.bytes);
      co_await call.send_recv(right, sent, (call.rank() + n - 1) % n, arrived, step, stop);
    }
  }
}

}  // namespace

Task<void> ring_allgather(Operation& op) {
  const Blocks blocks(op, kSliceBytes);
  if (blocks.empty()) co_return;
  const std::size_t element = op.call.element_bytes();
  const Extent own = blocks.of(position_in(op));
  const Buffer mine = op.recv.slice(own.begin * element, own.count * element);
  if (mine.data != op.send.data || mine.data == nullptr) co_await op.team.compute.copy(mine, op.send, op.stop);
  if (ranks_in(op) == 1) co_return;
  AllgatherRing ring{InterCall(op, Algorithm::kRingAllgather), blocks};
  const int right = (ring.call.rank() + 1) % ring.call.size();
  co_await side_by_side(ring, ring.call.slots_towards(right, blocks.segments()), &slot);
}

namespace {

Cost ring_allgather_cost(const Shape& shape) noexcept {
  const double steps = shape.ranks - 1, bytes = static_cast<double>(shape.bytes);
  const double segment = std::min<double>(bytes, kSliceBytes), segments = std::max(1.0, bytes / kSliceBytes);
  return {.latencies = latencies_in_ring(shape, segment, steps),
          .messages = 2 * steps * segments,
          .bytes = steps * bytes,
          .touched = 2 * bytes};
}

}  // namespace

constexpr AlgorithmInfo kRingAllgatherInfo{Collective::kAllgather, "ring", &no_obstacle, &ring_allgather_cost,
                                           &ring_allgather};

}  // namespace aiacc::inter

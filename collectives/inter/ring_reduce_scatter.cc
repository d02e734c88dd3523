#include "collectives/inter/ring_reduce_scatter.h"

#include <utility>

#include "collectives/inter/inter_call.h"
#include "collectives/inter/partial_reduce.h"

namespace aiacc::inter {
namespace {

struct ReduceScatterRing {
  InterCall call;
  Blocks blocks;
};

// In step k this rank sends its sum of block rank−k−1 and adds its part of block rank−k−2 to what arrives.
Task<void> slot(ReduceScatterRing& ring, std::size_t index, std::size_t slots, Stop& stop) {
  InterCall& call = ring.call;
  const int n = call.size();
  const std::size_t bytes = call.element_bytes();
  const Reduction& reduction = call.op.call.reduction;
  const bool scale_before = reduction.prescale != 1.0;
  const std::size_t largest = ring.blocks.longest_segment() * bytes;
  Scratch first(call.op, largest), second(call.op, largest), scaled(call.op, scale_before ? largest : 0);

  for (; index < ring.blocks.segments(); index += slots) {
    const auto part_of = [&](int block) {
      const Extent segment = ring.blocks.segment_of(block, index);
      return call.op.send.slice((ring.blocks.of(block).begin + segment.begin) * bytes, segment.count * bytes);
    };
    const auto scale = [&](const Buffer& into, const Buffer& from) {
      return call.compute().reduce({&into, 1}, {&from, 1}, from.bytes / bytes, reduction,
                                   {.first = true, .last = false, .ranks = call.op.inputs()}, stop);
    };
    Buffer arrived = first.buffer();
    Buffer spare = second.buffer();
    Buffer sum = part_of((call.rank() - 1 + n) % n);
    if (scale_before) {
      const Buffer place = spare.slice(0, sum.bytes);
      co_await scale(place, sum);
      sum = place;
    }
    for (int k = 0; k < n - 1; ++k) {
      const std::uint64_t step = index * static_cast<std::size_t>(n) + static_cast<std::size_t>(k);
      const int block = (call.rank() - k - 2 + 2 * n) % n;
      Buffer mine = part_of(block);
      const Buffer came = arrived.slice(0, mine.bytes);
      const int right = (call.rank() + 1) % n;
      if (k < n - 2) call.send_early_rts(right, step + 1, came.bytes);
      co_await call.send_recv(right, sum, (call.rank() + n - 1) % n, came, step, stop);
      if (scale_before) {
        const Buffer place = scaled.buffer().slice(0, mine.bytes);
        co_await scale(place, mine);
        mine = place;
      }
      const bool last = k == n - 2;
      const Buffer operands[] = {came, mine};
      const Buffer into =
          last ? call.op.recv.slice(ring.blocks.segment_of(block, index).begin * bytes, mine.bytes) : came;
      co_await call.compute().reduce({&into, 1}, operands, mine.bytes / bytes, reduction,
                                     {.first = false, .last = last, .ranks = call.op.inputs()}, stop);
      sum = came;
      std::swap(arrived, spare);
    }
  }
}

}  // namespace

Task<void> ring_reduce_scatter(Operation& op) {
  const Blocks blocks(op, kSliceBytes);
  if (blocks.empty()) co_return;
  if (ranks_in(op) == 1) {
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, blocks.of(0).count, op.call.reduction,
                                    {.ranks = op.inputs()}, op.stop);
    co_return;
  }
  ReduceScatterRing ring{InterCall(op, Algorithm::kRingReduceScatter), blocks};
  const int right = (ring.call.rank() + 1) % ring.call.size();
  co_await side_by_side(ring, ring.call.slots_towards(right, blocks.segments()), &slot);
}

namespace {

Task<void> run_ring_reduce_scatter(Operation& op) {
  return op.call.reduction.takes_partials() ? partial_reduce_scatter(op) : ring_reduce_scatter(op);
}

std::string_view ring_reduce_scatter_obstacle(const Shape& shape) noexcept {
  if (shape.narrows) return kRoundsPartialSums;
  return shape.ordered ? kReordersOperands : std::string_view();
}

Cost ring_reduce_scatter_cost(const Shape& shape) noexcept {
  const double steps = shape.ranks - 1, bytes = static_cast<double>(shape.bytes);
  const double segment = std::min<double>(bytes, kSliceBytes), segments = std::max(1.0, bytes / kSliceBytes);
  return {.latencies = latencies_in_ring(shape, segment, steps),
          .messages = 2 * steps * segments,
          .bytes = steps * bytes,
          .touched = 3 * steps * bytes,
          .overlaps = segments > 1};
}

}  // namespace

constexpr AlgorithmInfo kRingReduceScatterInfo{Collective::kReduceScatter, "ring", &ring_reduce_scatter_obstacle,
                                               &ring_reduce_scatter_cost, &run_ring_reduce_scatter};

}  // namespace aiacc::inter

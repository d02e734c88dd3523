#include "collectives/inter/ring_allreduce.h"

#include "collectives/inter/inter_call.h"
#include "collectives/inter/partial_reduce.h"

namespace aiacc::inter {
namespace {

struct AllreduceRing {
  InterCall call;
  Buffer input;    // this rank's contribution; may be the output
  Parts segments;  // parts of the whole buffer; each goes round the ring by itself

  Parts slices_of(std::size_t segment) const noexcept {
    return {segments.length(segment), static_cast<std::size_t>(call.size())};
  }
  std::uint64_t number(std::size_t segment, int step) const noexcept {
    return segment * 2 * static_cast<std::size_t>(call.size()) + static_cast<std::uint64_t>(step);
  }
};

// One segment: n slices, one message per step. In step k this rank sends slice rank−k and receives slice rank−k−1. In
// the first n−1 steps it receives partial sums and adds its own slice; it then has the complete sum of slice rank+1,
// and the complete slices go round in the same way. The RTS of each message is sent one step early: later it would
// queue behind everything that the other slots send.
Task<void> segment(AllreduceRing& ring, std::size_t index, std::size_t next, Buffer scratch, Scope& sends) {
  InterCall& call = ring.call;
  const int n = call.size();
  const int steps = 2 * (n - 1);
  const int right = (call.rank() + 1) % n;
  const int left = (call.rank() + n - 1) % n;
  const std::size_t bytes = call.element_bytes();
  const std::size_t base = ring.segments.offset(index);
  const Parts slices = ring.slices_of(index);
  const auto slice_of = [&](const Buffer& whole, int slice) {
    const auto part = static_cast<std::size_t>((slice + 2 * n) % n);
    return whole.slice((base + slices.offset(part)) * bytes, slices.length(part) * bytes);
  };

  for (int step = 0; step < steps; ++step) {
    const Buffer sent = slice_of(step == 0 ? ring.input : call.op.recv, call.rank() - step);
    const Buffer got = slice_of(call.op.recv, call.rank() - step - 1);
    const bool partial = step < n - 1;
    const Buffer arrived = partial ? scratch.slice(0, got.bytes) : got;
    if (step + 1 < steps) {
      call.send_early_rts(right, ring.number(index, step + 1), got.bytes, n == 2);
    } else if (next < ring.segments.parts) {
      call.send_early_rts(right, ring.number(next, 0),
                          ring.slices_of(next).length(static_cast<std::size_t>(call.rank())) * bytes, n == 2);
    }
    sends.spawn(call.send_aside(right, ring.number(index, step), sent, n == 2, sends.stop()));
    co_await call.recv(left, ring.number(index, step), arrived, sends.stop(), n == 2);
    if (!partial) continue;
    const Buffer operands[] = {arrived, slice_of(ring.input, call.rank() - step - 1)};
    const Compute::Step pass{.first = false, .last = step == n - 2, .ranks = call.op.inputs()};
    co_await call.compute().reduce({&got, 1}, operands, got.bytes / bytes, call.op.call.reduction, pass, sends.stop());
  }
}

Task<void> every_segment(AllreduceRing& ring, std::size_t index, std::size_t slots, Buffer scratch, Scope& sends) {
  for (; index < ring.segments.parts; index += slots) co_await segment(ring, index, index + slots, scratch, sends);
}

Task<void> slot(AllreduceRing& ring, std::size_t index, std::size_t slots, Stop& stop) {
  Scratch scratch(ring.call.op, ring.slices_of(0).length(0) * ring.call.element_bytes());
  Scope sends(ring.call.op.team.loop, stop);
  sends.spawn(every_segment(ring, index, slots, scratch.buffer(), sends));
  co_await sends.join();
}

}  // namespace

Task<void> ring_allreduce(Operation& op) {
  const std::size_t n = static_cast<std::size_t>(ranks_in(op));
  if (op.call.count == 0) co_return;
  if (n == 1) {
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, op.call.reduction,
                                    {.ranks = op.inputs()}, op.stop);
    co_return;
  }
  const std::size_t segments = pieces_of(op.call.bytes(), n * kSliceBytes);
  AllreduceRing ring{InterCall(op, Algorithm::kRingAllreduce), op.send, Parts{op.call.count, segments}};
  if (op.call.reduction.prescale != 1.0) {
    // This rank's input is scaled only here: the partial sums that it is added to in the ring are scaled already.
    const Compute::Step scale{.first = true, .last = false, .ranks = op.inputs()};
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, op.call.reduction, scale, op.stop);
    ring.input = op.recv;
  }
  co_await side_by_side(ring, ring.call.slots_towards((ring.call.rank() + 1) % static_cast<int>(n), segments), &slot);
}

namespace {

Task<void> run_ring_allreduce(Operation& op) {
  return op.call.reduction.takes_partials() ? partial_ring_allreduce(op) : ring_allreduce(op);
}

std::string_view ring_allreduce_obstacle(const Shape& shape) noexcept {
  if (shape.narrows) return kRoundsPartialSums;
  return shape.ordered ? kReordersOperands : std::string_view();
}

Cost ring_allreduce_cost(const Shape& shape) noexcept {
  const double n = shape.ranks, steps = 2 * (n - 1), bytes = static_cast<double>(shape.bytes);
  const double slice = std::min<double>(bytes / n, kSliceBytes), segments = std::max(1.0, bytes / n / kSliceBytes);
  return {.latencies = latencies_in_ring(shape, slice, steps),
          .messages = 2 * steps * segments,
          .bytes = steps / n * bytes,
          .touched = 3 * (n - 1) / n * bytes,
          .overlaps = segments > 1};
}

}  // namespace

constexpr AlgorithmInfo kRingAllreduceInfo{Collective::kAllreduce, "ring", &ring_allreduce_obstacle,
                                           &ring_allreduce_cost, &run_ring_allreduce};

}  // namespace aiacc::inter

#include "collectives/net/ring_allreduce.h"

#include "collectives/net/net_call.h"

namespace aiacc::net {
namespace {

struct Ring {
  NetCall call;
  Buffer input;    // what this rank contributes; may be the output
  Parts segments;  // of the whole; each goes round the ring on its own
};

// One segment: n slices, each a message a step. In step k of the first half this rank sends slice rank−k and adds slice
// rank−k−1; after n−1 steps it owns slice rank+1 and passes finished slices on in the same way.
Task<void> segment(Ring& ring, std::size_t index, Buffer scratch, Stop& stop) {
  NetCall& call = ring.call;
  const int n = call.size();
  const int right = (call.rank() + 1) % n;
  const int left = (call.rank() + n - 1) % n;
  const std::size_t bytes = call.element_bytes();
  const Parts slices{ring.segments.length(index), static_cast<std::size_t>(n)};
  const std::size_t base = ring.segments.offset(index);
  const auto slice_of = [&](const Buffer& whole, int slice) {
    const auto part = static_cast<std::size_t>(slice);
    return whole.slice((base + slices.offset(part)) * bytes, slices.length(part) * bytes);
  };
  const std::uint64_t first_step = index * 2 * static_cast<std::size_t>(n);

  for (int k = 0; k < n - 1; ++k) {
    const int out = (call.rank() - k + n) % n;
    const int in = (call.rank() - k - 1 + n) % n;
    const Buffer arrived = scratch.slice(0, slice_of(ring.input, in).bytes);
    const Buffer sent = slice_of(k == 0 ? ring.input : call.op.recv, out);
    co_await call.send_recv(right, sent, left, arrived, first_step + static_cast<std::uint64_t>(k), stop);
    const Buffer operands[] = {arrived, slice_of(ring.input, in)};
    const Buffer sum = slice_of(call.op.recv, in);
    const Compute::Step step{.first = false, .last = k == n - 2, .ranks = call.op.inputs()};
    co_await call.compute().reduce({&sum, 1}, operands, sum.bytes / bytes, call.op.call.reduction, step);
  }
  for (int k = 0; k < n - 1; ++k) {
    const Buffer sent = slice_of(call.op.recv, (call.rank() + 1 - k + n) % n);
    const Buffer arrived = slice_of(call.op.recv, (call.rank() - k + n) % n);
    co_await call.send_recv(right, sent, left, arrived, first_step + static_cast<std::uint64_t>(n - 1 + k), stop);
  }
}

Task<void> lane(Ring& ring, std::size_t index, std::size_t lanes, Stop& stop) {
  const Parts first{ring.segments.length(0), static_cast<std::size_t>(ring.call.size())};
  Scratch scratch(ring.call.op, first.length(0) * ring.call.element_bytes());
  for (; index < ring.segments.parts; index += lanes) co_await segment(ring, index, scratch.buffer(), stop);
}

}  // namespace

Task<void> ring_allreduce(Operation& op) {
  const std::size_t n = static_cast<std::size_t>(ranks_in(op));
  if (op.call.count == 0) co_return;
  if (n == 1) {
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, op.call.reduction,
                                    {.ranks = op.inputs()});
    co_return;
  }
  const std::size_t segments = pieces_of(op.call.bytes(), n * kSliceBytes);
  Ring ring{NetCall(op, Algorithm::kRingAllreduce), op.send, Parts{op.call.count, segments}};
  if (op.call.reduction.prescale != 1.0) {
    // Once, here: in the ring, this rank's elements meet partial sums that are scaled already.
    const Compute::Step scale{.first = true, .last = false, .ranks = op.inputs()};
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, op.call.reduction, scale);
    ring.input = op.recv;
  }
  co_await side_by_side(ring, std::min(segments, kLanes), &lane);
}

}  // namespace aiacc::net

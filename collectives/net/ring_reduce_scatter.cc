#include "collectives/net/ring_reduce_scatter.h"

#include <utility>

#include "collectives/net/net_call.h"

namespace aiacc::net {
namespace {

struct Ring {
  NetCall call;
  Parts segments;  // of a block
};

// In step k this rank sends its sum of block rank−k−1 and adds its part of block rank−k−2 to what arrives.
Task<void> lane(Ring& ring, std::size_t index, std::size_t lanes, Stop& stop) {
  NetCall& call = ring.call;
  const int n = call.size();
  const std::size_t bytes = call.element_bytes();
  const Reduction& reduction = call.op.call.reduction;
  const bool scale_before = reduction.prescale != 1.0;
  const std::size_t largest = ring.segments.length(0) * bytes;
  Scratch first(call.op, largest), second(call.op, largest), scaled(call.op, scale_before ? largest : 0);

  for (; index < ring.segments.parts; index += lanes) {
    const std::size_t count = ring.segments.length(index);
    const auto part_of = [&](int block) {
      const std::size_t begin = static_cast<std::size_t>(block) * call.op.call.count + ring.segments.offset(index);
      return call.op.send.slice(begin * bytes, count * bytes);
    };
    Buffer sum = part_of((call.rank() - 1 + n) % n);
    Buffer arrived = first.buffer().slice(0, count * bytes);
    Buffer spare = second.buffer().slice(0, count * bytes);
    if (scale_before) {
      co_await call.compute().reduce({&spare, 1}, {&sum, 1}, count, reduction,
                                     {.first = true, .last = false, .ranks = n});
      sum = spare;
    }
    for (int k = 0; k < n - 1; ++k) {
      const std::uint64_t step = index * static_cast<std::size_t>(n) + static_cast<std::size_t>(k);
      co_await call.send_recv((call.rank() + 1) % n, sum, (call.rank() + n - 1) % n, arrived, step, stop);
      Buffer mine = part_of((call.rank() - k - 2 + 2 * n) % n);
      if (scale_before) {
        const Buffer place = scaled.buffer().slice(0, count * bytes);
        co_await call.compute().reduce({&place, 1}, {&mine, 1}, count, reduction,
                                       {.first = true, .last = false, .ranks = n});
        mine = place;
      }
      const bool last = k == n - 2;
      const Buffer operands[] = {arrived, mine};
      const Buffer into = last ? call.op.recv.slice(ring.segments.offset(index) * bytes, count * bytes) : arrived;
      co_await call.compute().reduce({&into, 1}, operands, count, reduction,
                                     {.first = false, .last = last, .ranks = n});
      sum = arrived;
      std::swap(arrived, spare);
    }
  }
}

}  // namespace

Task<void> ring_reduce_scatter(Operation& op) {
  if (op.call.count == 0) co_return;
  if (op.team.size() == 1) {
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, op.call.reduction, {});
    co_return;
  }
  const std::size_t segments = pieces_of(op.call.bytes(), kSliceBytes);
  Ring ring{NetCall(op, Algorithm::kRingReduceScatter), Parts{op.call.count, segments}};
  co_await side_by_side(ring, std::min(segments, kLanes), &lane);
}

}  // namespace aiacc::net

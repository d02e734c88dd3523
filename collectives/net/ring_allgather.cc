#include "collectives/net/ring_allgather.h"

#include "collectives/net/net_call.h"

namespace aiacc::net {
namespace {

struct Ring {
  NetCall call;
  Parts segments;  // of a block
};

Task<void> lane(Ring& ring, std::size_t index, std::size_t lanes, Stop& stop) {
  NetCall& call = ring.call;
  const int n = call.size();
  const std::size_t bytes = call.element_bytes();
  for (; index < ring.segments.parts; index += lanes) {
    const auto part_of = [&](int block) {
      const std::size_t first = static_cast<std::size_t>(block) * call.op.call.count + ring.segments.offset(index);
      return call.op.recv.slice(first * bytes, ring.segments.length(index) * bytes);
    };
    for (int k = 0; k < n - 1; ++k) {
      const Buffer sent = part_of((call.rank() - k + n) % n);
      const Buffer arrived = part_of((call.rank() - k - 1 + n) % n);
      const std::uint64_t step = index * static_cast<std::size_t>(n) + static_cast<std::size_t>(k);
      co_await call.send_recv((call.rank() + 1) % n, sent, (call.rank() + n - 1) % n, arrived, step, stop);
    }
  }
}

}  // namespace

Task<void> ring_allgather(Operation& op) {
  if (op.call.count == 0) co_return;
  const std::size_t block = op.call.bytes();
  const Buffer mine = op.recv.slice(static_cast<std::size_t>(op.team.rank) * block, block);
  if (mine.data != op.send.data || mine.data == nullptr) co_await op.team.compute.copy(mine, op.send);
  if (op.team.size() == 1) co_return;
  const std::size_t segments = pieces_of(block, kSliceBytes);
  Ring ring{NetCall(op, Algorithm::kRingAllgather), Parts{op.call.count, segments}};
  co_await side_by_side(ring, std::min(segments, kLanes), &lane);
}

}  // namespace aiacc::net

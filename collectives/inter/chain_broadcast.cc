#include "collectives/inter/chain_broadcast.h"

#include <cmath>

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

// Cut into equal segments of at most this length, a payload of more than kCreditBytes has none of kEagerBytes or less.
constexpr std::size_t kShortestAnnounced = 96 << 10;
static_assert(Mailbox::kCreditBytes / (Mailbox::kCreditBytes / kShortestAnnounced + 1) > Mailbox::kEagerBytes);

// The best length of a segment on a usual network, but none so short that it is sent eagerly and without credit: what goes
// along a chain brings none back. Longer ones than a slice would save no time that can be measured.
std::size_t segment_bytes(const Shape& shape) noexcept {
  if (shape.ranks <= 2) return kSliceBytes;
  constexpr NetworkModel kUsual;
  const double best =
      std::sqrt(2 * kUsual.message_us * kUsual.bytes_per_us * static_cast<double>(shape.bytes) / (shape.ranks - 2));
  const std::size_t shortest = shape.bytes <= Mailbox::kCreditBytes ? kShortestChainSegment : kShortestAnnounced;
  return std::clamp(static_cast<std::size_t>(best), shortest, kSliceBytes);
}

struct Chain {
  InterCall call;
  Buffer buffer;
  Parts segments;

  // From the root; the next rank has the next one.
  int position() const noexcept { return (call.rank() - call.root() + call.size()) % call.size(); }
  bool receives() const noexcept { return position() != 0; }
  bool sends() const noexcept { return position() != call.size() - 1; }
  int previous() const noexcept { return (call.rank() + call.size() - 1) % call.size(); }
  int next() const noexcept { return (call.rank() + 1) % call.size(); }
};

Task<void> slot(Chain& chain, std::size_t index, std::size_t slots, Stop& stop) {
  InterCall& call = chain.call;
  for (; index < chain.segments.parts; index += slots) {
    const std::size_t bytes = call.element_bytes();
    const Buffer segment =
        chain.buffer.slice(chain.segments.offset(index) * bytes, chain.segments.length(index) * bytes);
    // While the segment arrives here, the next rank grants it.
    if (chain.receives() && chain.sends()) call.send_early_rts(chain.next(), index, segment.bytes);
    if (chain.receives()) co_await call.recv(chain.previous(), index, segment, stop);
    if (chain.sends()) co_await call.send(chain.next(), index, segment, stop);
  }
}

}  // namespace

Task<void> chain_broadcast(Operation& op) {
  if (op.call.count == 0) co_return;
  const Buffer buffer = op.recv.bytes != 0 ? op.recv : op.send;
  if (op.team.rank == op.call.root && op.send.bytes != 0 && op.send.data != buffer.data) {
    co_await op.team.compute.copy(buffer, op.send, op.stop);
  }
  if (ranks_in(op) == 1) co_return;
  const std::size_t segments = std::min(op.call.count, pieces_of(op.call.bytes(), segment_bytes(shape_of(op))));
  Chain chain{InterCall(op, Algorithm::kChainBroadcast), buffer, Parts{op.call.count, segments}};
  co_await side_by_side(chain, chain.call.slots_towards(chain.sends() ? chain.next() : chain.previous(), segments),
                        &slot);
}

namespace {

// A rank in the middle receives and sends every segment. All ranks announce their first segments at once, so an RTS and a CTS
// add two latencies to the whole chain.
Cost chain_broadcast_cost(const Shape& shape) noexcept {
  const double links = shape.ranks - 1, bytes = static_cast<double>(shape.bytes);
  const double segment = std::min(bytes, static_cast<double>(segment_bytes(shape)));
  const double segments = std::max(1.0, bytes / static_cast<double>(segment_bytes(shape)));
  return {.latencies = links - 1 + latencies_of(segment),
          .messages = std::min(links, 2.0) * segments,
          .bytes = bytes + (links - 1) * segment};
}

}  // namespace

constexpr AlgorithmInfo kChainBroadcastInfo{Collective::kBroadcast, "chain", &no_obstacle, &chain_broadcast_cost,
                                            &chain_broadcast};

}  // namespace aiacc::inter

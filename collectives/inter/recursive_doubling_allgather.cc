#include "collectives/inter/recursive_doubling_allgather.h"

#include <bit>

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {

bool recursive_doubling_applies(int ranks, std::size_t block_bytes) noexcept {
  const bool halves = ranks >= 4 && std::has_single_bit(static_cast<unsigned>(ranks));
  return halves && block_bytes <= Mailbox::kSwappedEagerBytes / (static_cast<unsigned>(ranks) / 2);
}

std::string_view recursive_doubling_obstacle(const Shape& shape) noexcept {
  if (shape.among_some) return "it needs one rank on each host";  // its blocks are not those of the call
  if (shape.uneven) return "it needs blocks of one length";
  if (recursive_doubling_applies(shape.ranks, shape.bytes)) return {};
  return recursive_doubling_applies(shape.ranks, 0) ? "it sends half of all blocks at once, and no more than 128K"
                                                    : "it needs a power of two of ranks, at least four";
}

Task<void> recursive_doubling_allgather(Operation& op) {
  if (op.call.count == 0) co_return;
  InterCall call(op, Algorithm::kDoublingAllgather);
  const std::size_t bytes = op.call.bytes();
  const auto blocks = [&](int first, int count) {
    return op.recv.slice(static_cast<std::size_t>(first) * bytes, static_cast<std::size_t>(count) * bytes);
  };
  const Buffer mine = blocks(call.rank(), 1);
  if (mine.data != op.send.data || mine.data == nullptr) co_await op.team.compute.copy(mine, op.send, op.stop);
  std::uint64_t step = 0;
  for (int distance = 1; distance < call.size(); distance *= 2, ++step) {
    const int had = call.rank() & -distance, partner = call.rank() ^ distance;
    co_await call.send_recv(partner, blocks(had, distance), partner, blocks(had ^ distance, distance), step, op.stop);
  }
}

namespace {

Cost recursive_doubling_allgather_cost(const Shape& shape) noexcept {
  const double rounds = rounds_among(shape.ranks), bytes = static_cast<double>(shape.bytes);
  return {.latencies = rounds, .messages = 2 * rounds, .bytes = (shape.ranks - 1) * bytes, .touched = 2 * bytes};
}

}  // namespace

constexpr AlgorithmInfo kRecursiveDoublingAllgatherInfo{
    Collective::kAllgather, "recursive-doubling", &recursive_doubling_obstacle, &recursive_doubling_allgather_cost,
    &recursive_doubling_allgather};

}  // namespace aiacc::inter

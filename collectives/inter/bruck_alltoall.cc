#include "collectives/inter/bruck_alltoall.h"

#include <algorithm>

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

struct Bruck {
  InterCall call;
  std::size_t bytes;  // of a block
  Buffer held = {};   // in place d the block that has to travel the distance d, or has travelled it
  Buffer out = {};    // the blocks of one message
  Buffer in = {};

  Buffer block(const Buffer& of, int index) const noexcept {
    return of.slice(static_cast<std::size_t>(index) * bytes, bytes);
  }
};

Compute::Done copy(Bruck& run, Buffer to, Buffer from) { return run.call.compute().copy(to, from, run.call.op.stop); }

// Of n blocks, those whose distance has the bit of `hop`, run by run of neighbours: each run is one copy.
Task<void> pack(Bruck& run, int hop, bool into_message) {
  const int n = run.call.size();
  std::size_t packed = 0;
  for (int first = hop; first < n; first += 2 * hop) {
    const std::size_t length = static_cast<std::size_t>(std::min(hop, n - first)) * run.bytes;
    const Buffer held = run.held.slice(static_cast<std::size_t>(first) * run.bytes, length);
    const Buffer message = (into_message ? run.out : run.in).slice(packed, length);
    co_await copy(run, into_message ? message : held, into_message ? held : message);
    packed += length;
  }
}

// How many of the distances below n have the bit of `hop`.
std::size_t blocks_of(int n, int hop) noexcept {
  return static_cast<std::size_t>(n / (2 * hop) * hop + std::max(0, n % (2 * hop) - hop));
}

// Copies n blocks so that block (begin + i) mod n of `from` becomes block i of `to`.
Task<void> rotate(Bruck& run, Buffer to, Buffer from, int begin) {
  const auto n = static_cast<std::size_t>(run.call.size());
  const std::size_t first = (n - static_cast<std::size_t>(begin)) * run.bytes, rest = n * run.bytes - first;
  co_await copy(run, to.slice(0, first), from.slice(static_cast<std::size_t>(begin) * run.bytes, first));
  if (rest > 0) co_await copy(run, to.slice(first, rest), from.slice(0, rest));
}

}  // namespace

Task<void> bruck_alltoall(Operation& op) {
  if (op.call.count == 0) co_return;
  const int n = ranks_in(op), rank = position_in(op);
  Bruck run{InterCall(op, Algorithm::kBruckAlltoall), op.call.bytes()};
  const std::size_t all = static_cast<std::size_t>(n) * run.bytes;
  const std::size_t message = static_cast<std::size_t>(n / 2) * run.bytes;
  Scratch scratch(op, all + 2 * message);
  run.held = scratch.buffer().slice(0, all);
  run.out = scratch.buffer().slice(all, message);
  run.in = scratch.buffer().slice(all + message, message);
  co_await rotate(run, run.held, op.send, rank);
  std::uint64_t round = 0;
  for (int hop = 1; hop < n; hop *= 2, ++round) {
    const std::size_t length = blocks_of(n, hop) * run.bytes;
    co_await pack(run, hop, true);
    co_await run.call.send_recv((rank + hop) % n, run.out.slice(0, length), (rank - hop + n) % n,
                                run.in.slice(0, length), round, op.stop);
    co_await pack(run, hop, false);
  }
  // The block that has travelled the distance d is that of rank − d.
  for (int distance = 0; distance < n; ++distance) {
    co_await copy(run, run.block(op.recv, (rank - distance + n) % n), run.block(run.held, distance));
  }
}

namespace {

std::string_view bruck_alltoall_obstacle(const Shape& shape) noexcept {
  if (shape.uneven) return "it needs blocks of one length";
  return shape.skips_host ? "it needs one rank of each host" : std::string_view();
}

Cost bruck_alltoall_cost(const Shape& shape) noexcept {
  const double rounds = rounds_among(shape.ranks), n = shape.ranks, bytes = static_cast<double>(shape.bytes);
  return {.latencies = rounds * latencies_of(n / 2 * bytes),
          .messages = 2 * rounds,
          .bytes = rounds * n / 2 * bytes,
          .touched = (4 + 2 * rounds) * n * bytes};
}

}  // namespace

constexpr AlgorithmInfo kBruckAlltoallInfo{Collective::kAlltoall, "bruck", &bruck_alltoall_obstacle,
                                           &bruck_alltoall_cost, &bruck_alltoall};

}  // namespace aiacc::inter

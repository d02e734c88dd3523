#include "collectives/net/halving_doubling_allreduce.h"

#include <bit>

#include "collectives/net/net_call.h"

namespace aiacc::net {
namespace {

// Half a segment is in a lane's scratch memory, which with kLanes comes to the two MiB that net_call.h allows, however many
// ranks there are. Segments as long as a ring's (a slice for each rank) would need more with each rank.
constexpr std::size_t kSegmentBytes = 4 * kSliceBytes;

// A range of elements that this rank and its partner share: this rank goes on with one half and the partner with the other.
struct Halves {
  Extent kept;
  Extent given;
};

struct Halving {
  NetCall call;
  Buffer input;    // what this rank contributes; may be the output
  Parts segments;  // of the whole; each is halved and put together on its own

  int levels() const noexcept { return std::bit_width(static_cast<unsigned>(call.size())) - 1; }
  int steps() const noexcept { return 2 * levels(); }
  // Distances double in the first half of the steps and shrink again in the other.
  int level(int step) const noexcept { return step < levels() ? step : steps() - 1 - step; }
  bool reduces(int step) const noexcept { return step < levels(); }
  int partner(int step) const noexcept { return call.rank() ^ (1 << level(step)); }
  std::uint64_t number(std::size_t segment, int step) const noexcept {
    return segment * static_cast<std::size_t>(steps()) + static_cast<std::uint64_t>(step);
  }

  // What is left of a segment after `level` halvings, cut once more. Ranks whose places agree in the lowest `level` bits
  // share it; the one whose next bit is 0 keeps the first half.
  Halves halves(std::size_t segment, int level) const noexcept {
    Halves at{{segments.offset(segment), segments.length(segment)}, {}};
    for (int bit = 0; bit <= level; ++bit) {
      const Parts parts{at.kept.count, 2};
      const std::size_t mine = static_cast<unsigned>(call.rank()) >> bit & 1;
      const std::size_t begin = at.kept.begin;
      at.kept = {begin + parts.offset(mine), parts.length(mine)};
      at.given = {begin + parts.offset(1 - mine), parts.length(1 - mine)};
    }
    return at;
  }
  Extent sent(std::size_t segment, int step) const noexcept {
    const Halves at = halves(segment, level(step));
    return reduces(step) ? at.given : at.kept;
  }
  Extent got(std::size_t segment, int step) const noexcept {
    const Halves at = halves(segment, level(step));
    return reduces(step) ? at.kept : at.given;
  }
};

// Each message is announced a step before, for the reason that ring_allreduce.cc gives.
Task<void> segment(Halving& run, std::size_t index, std::size_t next, Buffer scratch, Stop& stop) {
  NetCall& call = run.call;
  const auto announce = [&run, &call](std::size_t segment, int step) {
    call.announce(run.partner(step), run.number(segment, step), run.sent(segment, step).count * call.element_bytes());
  };
  for (int step = 0; step < run.steps(); ++step) {
    const int partner = run.partner(step);
    const Buffer& mine = step == 0 ? run.input : call.op.recv;
    const Buffer sent = call.part_of(mine, run.sent(index, step));
    const Extent extent = run.got(index, step);
    const Buffer got = call.part_of(call.op.recv, extent);
    const Buffer arrived = run.reduces(step) ? scratch.slice(0, got.bytes) : got;
    if (step + 1 < run.steps()) {
      announce(index, step + 1);
    } else if (next < run.segments.parts) {
      announce(next, 0);
    }
    co_await call.send_recv(partner, sent, partner, arrived, run.number(index, step), stop);
    if (!run.reduces(step)) continue;
    const Buffer operands[] = {arrived, call.part_of(mine, extent)};
    const Compute::Step pass{.first = false, .last = step == run.levels() - 1, .ranks = call.op.inputs()};
    co_await call.compute().reduce({&got, 1}, operands, extent.count, call.op.call.reduction, pass);
  }
}

Task<void> lane(Halving& run, std::size_t index, std::size_t lanes, Stop& stop) {
  Scratch scratch(run.call.op, Parts{run.segments.length(0), 2}.length(0) * run.call.element_bytes());
  for (; index < run.segments.parts; index += lanes) {
    co_await segment(run, index, index + lanes, scratch.buffer(), stop);
  }
}

}  // namespace

bool halving_serves(int ranks) noexcept { return ranks >= 4 && std::has_single_bit(static_cast<unsigned>(ranks)); }

Task<void> halving_doubling_allreduce(Operation& op) {
  if (op.call.count == 0) co_return;
  if (ranks_in(op) == 1) {
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, op.call.reduction,
                                    {.ranks = op.inputs()});
    co_return;
  }
  const std::size_t segments = pieces_of(op.call.bytes(), kSegmentBytes);
  Halving run{NetCall(op, Algorithm::kHalvingDoubling), op.send, Parts{op.call.count, segments}};
  if (op.call.reduction.prescale != 1.0) {
    // Once, here: after the first step, this rank's elements are partial sums.
    const Compute::Step scale{.first = true, .last = false, .ranks = op.inputs()};
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, op.call.reduction, scale);
    run.input = op.recv;
  }
  co_await side_by_side(run, std::min(segments, kLanes), &lane);
}

}  // namespace aiacc::net

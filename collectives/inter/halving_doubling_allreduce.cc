#include "collectives/inter/halving_doubling_allreduce.h"

#include <bit>

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

// A slot's scratch memory holds half a segment; kSlots of these are the 2 MiB that inter_call.h permits, for any number
// of ranks. Segments as long as a ring's (a slice for each rank) would need more memory with each rank.
constexpr std::size_t kSegmentBytes = 4 * kSliceBytes;

// A range of elements that this rank and its partner share: this rank keeps one half, and the partner the other.
struct Halves {
  Extent kept;
  Extent given;
};

struct Halving {
  InterCall call;
  Buffer input;    // this rank's contribution; may be the output
  Parts segments;  // parts of the whole buffer; each runs the algorithm by itself

  int levels() const noexcept { return std::bit_width(static_cast<unsigned>(call.size())) - 1; }
  int steps() const noexcept { return 2 * levels(); }
  // Distances double in the first half of the steps (halving) and halve in the second (doubling).
  int level(int step) const noexcept { return step < levels() ? step : steps() - 1 - step; }
  bool reduces(int step) const noexcept { return step < levels(); }
  int partner(int step) const noexcept { return call.rank() ^ (1 << level(step)); }
  std::uint64_t number(std::size_t segment, int step) const noexcept {
    return segment * static_cast<std::size_t>(steps()) + static_cast<std::uint64_t>(step);
  }

  // The part of a segment that is left after `level` halvings, cut into halves. Ranks whose positions agree in the
  // lowest `level` bits share it; those whose next bit is 0 keep the first half.
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

// The RTS of each message is sent one step early; ring_allreduce.cc gives the reason.
Task<void> segment(Halving& run, std::size_t index, std::size_t next, Buffer scratch, Stop& stop) {
  InterCall& call = run.call;
  const auto send_early_rts = [&run, &call](std::size_t segment, int step) {
    call.send_early_rts(run.partner(step), run.number(segment, step),
                        run.sent(segment, step).count * call.element_bytes(), true);
  };
  for (int step = 0; step < run.steps(); ++step) {
    const int partner = run.partner(step);
    const Buffer& mine = step == 0 ? run.input : call.op.recv;
    const Buffer sent = call.part_of(mine, run.sent(index, step));
    const Extent extent = run.got(index, step);
    const Buffer got = call.part_of(call.op.recv, extent);
    const Buffer arrived = run.reduces(step) ? scratch.slice(0, got.bytes) : got;
    if (step + 1 < run.steps()) {
      send_early_rts(index, step + 1);
    } else if (next < run.segments.parts) {
      send_early_rts(next, 0);
    }
    co_await call.send_recv(partner, sent, partner, arrived, run.number(index, step), stop);
    if (!run.reduces(step)) continue;
    const Buffer operands[] = {arrived, call.part_of(mine, extent)};
    const Compute::Step pass{.first = false, .last = step == run.levels() - 1, .ranks = call.op.inputs()};
    co_await call.compute().reduce({&got, 1}, operands, extent.count, call.op.call.reduction, pass, stop);
  }
}

Task<void> slot(Halving& run, std::size_t index, std::size_t slots, Stop& stop) {
  Scratch scratch(run.call.op, Parts{run.segments.length(0), 2}.length(0) * run.call.element_bytes());
  for (; index < run.segments.parts; index += slots) {
    co_await segment(run, index, index + slots, scratch.buffer(), stop);
  }
}

}  // namespace

bool halving_doubling_applies(int ranks) noexcept {
  return ranks >= 4 && std::has_single_bit(static_cast<unsigned>(ranks));
}

Task<void> halving_doubling_allreduce(Operation& op) {
  if (op.call.count == 0) co_return;
  if (ranks_in(op) == 1) {
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, op.call.reduction,
                                    {.ranks = op.inputs()}, op.stop);
    co_return;
  }
  const std::size_t segments = pieces_of(op.call.bytes(), kSegmentBytes);
  Halving run{InterCall(op, Algorithm::kHalvingDoubling), op.send, Parts{op.call.count, segments}};
  if (op.call.reduction.prescale != 1.0) {
    // This rank's input is scaled only here: after the first step, its elements are partial sums.
    const Compute::Step scale{.first = true, .last = false, .ranks = op.inputs()};
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, op.call.reduction, scale, op.stop);
    run.input = op.recv;
  }
  co_await side_by_side(run, std::min(segments, kSlots), &slot);
}

namespace {

std::string_view halving_doubling_allreduce_obstacle(const Shape& shape) noexcept {
  if (!halving_doubling_applies(shape.ranks)) return "it needs a power of two of ranks, at least four";
  if (shape.takes_partials) return kTakesNoPartials;
  if (shape.narrows) return kRoundsPartialSums;
  return shape.ordered ? kReordersOperands : std::string_view();
}

Cost halving_doubling_allreduce_cost(const Shape& shape) noexcept {
  const double n = shape.ranks, steps = 2 * rounds_among(shape.ranks), bytes = static_cast<double>(shape.bytes);
  const double segment = std::min<double>(bytes, kSegmentBytes), segments = std::max(1.0, bytes / kSegmentBytes);
  double latencies = latencies_of_swap(segment / 2, shape);
  for (int parts = 4; parts <= shape.ranks; parts *= 2)
    latencies += 2 * latencies_of_swap_after_early_rts(segment / parts, shape);
  return {.latencies = latencies + latencies_of_swap_after_early_rts(segment / 2, shape),
          .messages = 2 * steps * segments,
          .bytes = 2 * (n - 1) / n * bytes,
          .touched = 3 * (n - 1) / n * bytes,
          .overlaps = segments > 1};
}

}  // namespace

constexpr AlgorithmInfo kHalvingDoublingAllreduceInfo{Collective::kAllreduce, "halving-doubling",
                                                      &halving_doubling_allreduce_obstacle,
                                                      &halving_doubling_allreduce_cost, &halving_doubling_allreduce};

}  // namespace aiacc::inter

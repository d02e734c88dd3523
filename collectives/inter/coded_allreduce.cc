#include "collectives/inter/coded_allreduce.h"

#include <array>

#include "base/data/codec.h"
#include "base/task/scope.h"
#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

struct Coded {
  InterCall call;
  bool scales;     // the input of a segment first of all, into the output
  Parts segments;  // parts of the whole buffer; each is reduced by itself

  const Buffer& input() const noexcept { return scales ? call.op.recv : call.op.send; }
  Extent whole(std::size_t segment) const noexcept { return {segments.offset(segment), segments.length(segment)}; }
  Extent shard(std::size_t segment, int rank) const noexcept {
    const Parts shards{segments.length(segment), static_cast<std::size_t>(call.size())};
    const auto part = static_cast<std::size_t>(rank);
    return {segments.offset(segment) + shards.offset(part), shards.length(part)};
  }
  Codec codec() const noexcept { return call.op.call.reduction.codec; }
  Buffer message(const Buffer& memory, Extent elements) const noexcept {
    return memory.slice(0, encoded_bytes(codec(), elements.count));
  }
  // In round k, from 1 to n−1, a rank sends to rank+k and receives from rank−k; first shards, then sums.
  int to(int round) const noexcept { return (call.rank() + round) % call.size(); }
  int from(int round) const noexcept { return (call.rank() + call.size() - round) % call.size(); }
  std::uint64_t step(std::size_t segment, bool sums, int round) const noexcept {
    const auto n = static_cast<std::uint64_t>(call.size());
    return (2 * segment + (sums ? 1 : 0)) * n + static_cast<std::uint64_t>(round);
  }
};

// The steps of one slot, segment after segment: n−1 exchanges of shards, and n−1 of sums. What comes is added or written at once. The
// RTS of a long message leaves two steps early and each receive is posted one step early, so that its CTS is there when the message is.
// Else RTS and CTS would wait behind what the other slots send, once in each step, and the line would be idle when all slots wait.
class CodedSlot {
 public:
  CodedSlot(Coded& run, std::size_t index, std::size_t slots, Stop& stop)
      : run_(run),
        first_(index),
        slots_(slots),
        rounds_(static_cast<std::size_t>(run.call.size() - 1)),
        end_((run.segments.parts - index + slots - 1) / slots * 2 * rounds_),
        longest_(encoded_bytes(run.codec(), run.shard(0, 0).count)),
        out_(run.call.op, longest_),
        in_(run.call.op, 2 * longest_),
        scope_(run.call.op.team.loop, stop),
        came_{Event(run.call.op.team.loop), Event(run.call.op.team.loop)} {}

  Task<void> run() {
    scope_.spawn(every_step());
    co_await scope_.join();
  }

 private:
  // Where a step is, of all of this slot's.
  struct Place {
    std::size_t segment;
    bool sums;
    int round;
    bool begins() const noexcept { return round == 1; }
  };
  Place place(std::size_t at) const noexcept {
    const std::size_t step = at % (2 * rounds_);
    return {first_ + at / (2 * rounds_) * slots_, step >= rounds_, static_cast<int>(step % rounds_) + 1};
  }
  std::uint64_t number(Place of) const noexcept { return run_.step(of.segment, of.sums, of.round); }
  bool swaps(Place of) const noexcept { return run_.to(of.round) == run_.from(of.round); }
  Extent sent(Place of) const noexcept {
    return run_.shard(of.segment, of.sums ? run_.call.rank() : run_.to(of.round));
  }
  Extent got(Place of) const noexcept {
    return run_.shard(of.segment, of.sums ? run_.from(of.round) : run_.call.rank());
  }
  Buffer arrival(std::size_t at) const noexcept {
    return run_.message(in_.buffer().slice(at % 2 * longest_, longest_), got(place(at)));
  }

  void announce(std::size_t at) {
    if (at >= end_) return;
    const Place of = place(at);
    run_.call.send_early_rts(run_.to(of.round), number(of), encoded_bytes(run_.codec(), sent(of).count), swaps(of));
  }
  void receive_early(std::size_t at) {
    if (at >= end_) return;
    came_[at % 2].reset();
    scope_.spawn(receive(at));
  }
  Task<void> receive(std::size_t at) {
    const Place of = place(at);
    co_await run_.call.recv(run_.from(of.round), number(of), arrival(at), scope_.stop(), swaps(of));
    came_[at % 2].set();
  }

  Task<void> every_step() {
    receive_early(0);
    announce(0);
    announce(1);
    for (std::size_t at = 0; at < end_; ++at) {
      announce(at + 2);
      receive_early(at + 1);
      co_await step(at);
    }
  }
  Task<void> step(std::size_t at) {
    InterCall& call = run_.call;
    const Place of = place(at);
    if (of.begins() && of.sums) co_await finish_sum(of.segment);
    if (of.begins() && !of.sums) co_await begin_segment(of.segment);
    const Extent theirs = sent(of);
    const Buffer message = run_.message(out_.buffer(), theirs);
    if (!of.sums) {
      co_await call.compute().encode(message, call.part_of(run_.input(), theirs), theirs.count, run_.codec(),
                                     scope_.stop());
    }
    co_await call.send(run_.to(of.round), number(of), message, scope_.stop(), swaps(of));
    co_await came_[at % 2].wait(scope_.stop());
    const Extent of_message = got(of);
    co_await call.compute().decode(call.part_of(call.op.recv, of_message), arrival(at), of_message.count, run_.codec(),
                                   of.sums ? Compute::Decoding::kWrites : Compute::Decoding::kAdds, scope_.stop());
  }

  Task<void> begin_segment(std::size_t segment) {
    InterCall& call = run_.call;
    const Extent all = run_.whole(segment), own = run_.shard(segment, call.rank());
    if (run_.scales) {
      const Buffer from = call.part_of(call.op.send, all), into = call.part_of(call.op.recv, all);
      co_await call.compute().reduce({&into, 1}, {&from, 1}, all.count, call.op.call.reduction,
                                     {.first = true, .last = false, .ranks = call.op.inputs()}, scope_.stop());
    } else if (call.op.send.data != call.op.recv.data) {
      co_await call.compute().copy(call.part_of(call.op.recv, own), call.part_of(call.op.send, own), scope_.stop());
    }
  }
  // Encodes the sum of this rank's own elements, and has it as the others will.
  Task<void> finish_sum(std::size_t segment) {
    InterCall& call = run_.call;
    const Extent own = run_.shard(segment, call.rank());
    const Buffer result = call.part_of(call.op.recv, own), sum = run_.message(out_.buffer(), own);
    const Reduction& reduction = call.op.call.reduction;
    if (reduction.op == ReduceOp::kAvg || reduction.postscale != 1.0) {
      co_await call.compute().reduce({&result, 1}, {&result, 1}, own.count, reduction,
                                     {.first = false, .last = true, .ranks = call.op.inputs()}, scope_.stop());
    }
    co_await call.compute().encode(sum, result, own.count, run_.codec(), scope_.stop());
    co_await call.compute().decode(result, sum, own.count, run_.codec(), Compute::Decoding::kWrites, scope_.stop());
  }

  Coded& run_;
  const std::size_t first_, slots_, rounds_, end_, longest_;
  const Scratch out_, in_;
  Scope scope_;
  std::array<Event, 2> came_;  // by steps that are even or odd
};

Task<void> slot(Coded& run, std::size_t index, std::size_t slots, Stop& stop) {
  CodedSlot steps(run, index, slots, stop);
  co_await steps.run();
}

// Enough that the shards of one segment are summed while others travel, if that leaves messages of some length.
std::size_t segments_of(const Operation& op) noexcept {
  const auto n = static_cast<std::size_t>(ranks_in(op));
  constexpr std::size_t kLeastShard = 32 << 10;
  const std::size_t filled = std::min(kSlots, std::max<std::size_t>(1, op.call.bytes() / (n * kLeastShard)));
  return std::max(pieces_of(op.call.bytes(), n * kSliceBytes), filled);
}

}  // namespace

bool fits_coded_allreduce(const Operation& op) noexcept {
  const auto n = static_cast<std::size_t>(ranks_in(op));
  return op.call.reduction.codec != Codec::kNone && n > 1 && op.call.bytes() >= n * kLeastCodedShard;
}

Task<void> coded_allreduce(Operation& op) {
  const Reduction& reduction = op.call.reduction;
  AIACC_INVARIANT(
      reduction.type == DType::kFloat32 && (reduction.op == ReduceOp::kSum || reduction.op == ReduceOp::kAvg),
      "sums and averages of fp32 have a codec");
  Coded run{InterCall(op, Algorithm::kCodedAllreduce), reduction.prescale != 1.0,
            Parts{op.call.count, segments_of(op)}};
  co_await side_by_side(run, std::min(run.segments.parts, kSlots), &slot);
}

}  // namespace aiacc::inter

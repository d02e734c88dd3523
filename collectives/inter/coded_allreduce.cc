#include "collectives/inter/coded_allreduce.h"

#include "base/data/codec.h"
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

// Memory for the message that leaves, and for the one that comes.
struct Messages {
  const Buffer& out;
  const Buffer& in;
};

Task<void> begin_segment(Coded& run, std::size_t segment, Stop& stop) {
  InterCall& call = run.call;
  const Extent all = run.whole(segment), own = run.shard(segment, call.rank());
  if (run.scales) {
    const Buffer from = call.part_of(call.op.send, all), into = call.part_of(call.op.recv, all);
    co_await call.compute().reduce({&into, 1}, {&from, 1}, all.count, call.op.call.reduction,
                                   {.first = true, .last = false, .ranks = call.op.inputs()}, stop);
  } else if (call.op.send.data != call.op.recv.data) {
    co_await call.compute().copy(call.part_of(call.op.recv, own), call.part_of(call.op.send, own), stop);
  }
}

// What comes is added at once, to this rank's own elements.
Task<void> exchange_shards(Coded& run, std::size_t segment, Messages messages, Stop& stop) {
  InterCall& call = run.call;
  const Extent own = run.shard(segment, call.rank());
  const Buffer result = call.part_of(call.op.recv, own), came = run.message(messages.in, own);
  for (int round = 1; round < call.size(); ++round) {
    const Extent theirs = run.shard(segment, run.to(round));
    const Buffer sent = run.message(messages.out, theirs);
    co_await call.compute().encode(sent, call.part_of(run.input(), theirs), theirs.count, run.codec(), stop);
    co_await call.send_recv(run.to(round), sent, run.from(round), came, run.step(segment, false, round), stop);
    co_await call.compute().decode(result, came, own.count, run.codec(), Compute::Decoding::kAdds, stop);
  }
}

// Encodes the sum of this rank's own elements, and has it as the others will.
Task<void> finish_sum(Coded& run, std::size_t segment, Messages messages, Stop& stop) {
  InterCall& call = run.call;
  const Extent own = run.shard(segment, call.rank());
  const Buffer result = call.part_of(call.op.recv, own), sum = run.message(messages.out, own);
  const Reduction& reduction = call.op.call.reduction;
  if (reduction.op == ReduceOp::kAvg || reduction.postscale != 1.0) {
    co_await call.compute().reduce({&result, 1}, {&result, 1}, own.count, reduction,
                                   {.first = false, .last = true, .ranks = call.op.inputs()}, stop);
  }
  co_await call.compute().encode(sum, result, own.count, run.codec(), stop);
  co_await call.compute().decode(result, sum, own.count, run.codec(), Compute::Decoding::kWrites, stop);
}

Task<void> exchange_sums(Coded& run, std::size_t segment, Messages messages, Stop& stop) {
  InterCall& call = run.call;
  const Buffer sum = run.message(messages.out, run.shard(segment, call.rank()));
  for (int round = 1; round < call.size(); ++round) {
    const Extent theirs = run.shard(segment, run.from(round));
    const Buffer came = run.message(messages.in, theirs);
    co_await call.send_recv(run.to(round), sum, run.from(round), came, run.step(segment, true, round), stop);
    co_await call.compute().decode(call.part_of(call.op.recv, theirs), came, theirs.count, run.codec(),
                                   Compute::Decoding::kWrites, stop);
  }
}

Task<void> slot(Coded& run, std::size_t index, std::size_t slots, Stop& stop) {
  const std::size_t longest = encoded_bytes(run.codec(), run.shard(0, 0).count);
  const Scratch outgoing(run.call.op, longest), incoming(run.call.op, longest);
  const Buffer out = outgoing.buffer(), in = incoming.buffer();
  for (; index < run.segments.parts; index += slots) {
    co_await begin_segment(run, index, stop);
    co_await exchange_shards(run, index, {out, in}, stop);
    co_await finish_sum(run, index, {out, in}, stop);
    co_await exchange_sums(run, index, {out, in}, stop);
  }
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

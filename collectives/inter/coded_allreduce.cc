#include "collectives/inter/coded_allreduce.h"

#include "base/data/codec.h"
#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

struct Coded {
  InterCall call;
  Buffer input;    // this rank's contribution, scaled; may be the output
  Parts segments;  // parts of the whole buffer; each is reduced by itself

  Extent shard(std::size_t segment, int rank) const noexcept {
    const Parts shards{segments.length(segment), static_cast<std::size_t>(call.size())};
    const auto part = static_cast<std::size_t>(rank);
    return {segments.offset(segment) + shards.offset(part), shards.length(part)};
  }
  Codec codec() const noexcept { return call.op.call.reduction.codec; }
  std::size_t longest() const noexcept { return encoded_bytes(codec(), shard(0, 0).count); }
  // The place of the message that goes to a rank, or has come from it.
  Buffer message(const Buffer& messages, int rank, Extent elements) const noexcept {
    return messages.slice(static_cast<std::size_t>(rank) * longest(), encoded_bytes(codec(), elements.count));
  }
  std::uint64_t step(std::size_t segment, bool second, int round) const noexcept {
    const auto n = static_cast<std::uint64_t>(call.size());
    return (2 * segment + (second ? 1 : 0)) * n + static_cast<std::uint64_t>(round);
  }
};

struct Messages {
  const Buffer& out;
  const Buffer& in;
};

// In round k this rank sends to rank+k and receives from rank−k.
Task<void> exchange_shards(Coded& run, std::size_t segment, Messages messages, Stop& stop) {
  InterCall& call = run.call;
  const int n = call.size();
  const Extent own = run.shard(segment, call.rank());
  for (int round = 1; round < n; ++round) {
    const int to = (call.rank() + round) % n, from = (call.rank() + n - round) % n;
    const Extent theirs = run.shard(segment, to);
    const Buffer sent = run.message(messages.out, to, theirs);
    co_await call.compute().encode(sent, call.part_of(run.input, theirs), theirs.count, run.codec(), stop);
    co_await call.send_recv(to, sent, from, run.message(messages.in, from, own), run.step(segment, false, round), stop);
  }
}

// Adds what came to this rank's own elements, in an order that follows from the ranks, and encodes the result into `sum`.
Task<void> add_shards(Coded& run, std::size_t segment, const Buffer& in, Buffer sum, Stop& stop) {
  InterCall& call = run.call;
  const Extent own = run.shard(segment, call.rank());
  const Buffer result = call.part_of(call.op.recv, own);
  if (run.input.data != call.op.recv.data) co_await call.compute().copy(result, call.part_of(run.input, own), stop);
  for (int rank = 0; rank < call.size(); ++rank) {
    if (rank == call.rank()) continue;
    co_await call.compute().decode(result, run.message(in, rank, own), own.count, run.codec(), Compute::Decoding::kAdds,
                                   stop);
  }
  const Reduction& reduction = call.op.call.reduction;
  if (reduction.op == ReduceOp::kAvg || reduction.postscale != 1.0) {
    co_await call.compute().reduce({&result, 1}, {&result, 1}, own.count, reduction,
                                   {.first = false, .last = true, .ranks = call.op.inputs()}, stop);
  }
  co_await call.compute().encode(sum, result, own.count, run.codec(), stop);
  co_await call.compute().decode(result, sum, own.count, run.codec(), Compute::Decoding::kWrites, stop);
}

Task<void> exchange_sums(Coded& run, std::size_t segment, const Buffer& sum, const Buffer& in, Stop& stop) {
  InterCall& call = run.call;
  const int n = call.size();
  for (int round = 1; round < n; ++round) {
    const int to = (call.rank() + round) % n, from = (call.rank() + n - round) % n;
    const Extent theirs = run.shard(segment, from);
    const Buffer came = run.message(in, from, theirs);
    co_await call.send_recv(to, sum, from, came, run.step(segment, true, round), stop);
    co_await call.compute().decode(call.part_of(call.op.recv, theirs), came, theirs.count, run.codec(),
                                   Compute::Decoding::kWrites, stop);
  }
}

Task<void> slot(Coded& run, std::size_t index, std::size_t slots, Stop& stop) {
  InterCall& call = run.call;
  const auto n = static_cast<std::size_t>(call.size());
  const Scratch outgoing(call.op, n * run.longest()), incoming(call.op, n * run.longest());
  const Buffer out = outgoing.buffer(), in = incoming.buffer();
  for (; index < run.segments.parts; index += slots) {
    const Buffer sum = run.message(out, call.rank(), run.shard(index, call.rank()));
    co_await exchange_shards(run, index, {out, in}, stop);
    co_await add_shards(run, index, in, sum, stop);
    co_await exchange_sums(run, index, sum, in, stop);
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
  Coded run{InterCall(op, Algorithm::kCodedAllreduce), op.send, Parts{op.call.count, segments_of(op)}};
  if (reduction.prescale != 1.0) {
    const Compute::Step scale{.first = true, .last = false, .ranks = op.inputs()};
    co_await op.team.compute.reduce({&op.recv, 1}, {&op.send, 1}, op.call.count, reduction, scale, op.stop);
    run.input = op.recv;
  }
  co_await side_by_side(run, std::min(run.segments.parts, kSlots), &slot);
}

}  // namespace aiacc::inter

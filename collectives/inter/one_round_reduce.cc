#include "collectives/inter/one_round_reduce.h"

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

// A message costs a core one or two microseconds: with more ranks, reducing by shards is not slower.
constexpr int kMostRanks = 64;
// The bytes that an allreduce of 64 KiB by recursive doubling moves among four ranks.
constexpr std::size_t kMostBytes = 256 << 10;

struct OneRound {
  InterCall call;
  int root;  // -1: all ranks get the result
  Reduction reduction;
  Buffer input;
  Buffer all = {};  // the inputs of every rank

  Buffer of(int position) const noexcept {
    return all.slice(static_cast<std::size_t>(position) * input.bytes, input.bytes);
  }
};

// The exchange with one other rank.
Task<void> slot(OneRound& run, std::size_t index, std::size_t, Stop& stop) {
  InterCall& call = run.call;
  const int partner = static_cast<int>(index);
  if (partner == call.rank()) co_return;
  if (run.root < 0) {
    co_await call.send_recv(partner, run.input, partner, run.of(partner), 0, stop);
  } else if (call.rank() == run.root) {
    co_await call.recv(partner, 0, run.of(partner), stop);
  } else if (partner == run.root) {
    co_await call.send(partner, 0, run.input, stop);
  }
}

Task<void> reduce_in_one_round(Operation& op, bool all) {
  OneRound run{InterCall(op, Algorithm::kOneRoundReduce), all ? -1 : position_of(op, op.call.root), op.call.reduction,
               op.send};
  const auto n = static_cast<std::size_t>(run.call.size());
  if (op.call.count == 0) co_return;
  // If only some ranks' inputs are not scaled yet, each of these ranks scales its own.
  const bool scales = run.reduction.prescale != 1.0 && is_among_some(op);
  Scratch scaled(op, scales ? op.send.bytes : 0);
  if (scales) {
    run.input = scaled.buffer();
    co_await run.call.compute().reduce({&run.input, 1}, {&op.send, 1}, op.call.count, run.reduction,
                                       {.first = true, .last = false, .ranks = op.inputs()}, op.stop);
    run.reduction.prescale = 1.0;
  }
  const bool wants = run.root < 0 || run.call.rank() == run.root;
  Scratch scratch(op, wants ? n * op.send.bytes : 0);
  run.all = scratch.buffer();
  co_await side_by_side(run, n, &slot);
  if (!wants) co_return;
  std::vector<Buffer> operands;
  for (int position = 0; position < run.call.size(); ++position) {
    operands.push_back(position == run.call.rank() ? run.input : run.of(position));
  }
  co_await run.call.compute().reduce({&op.recv, 1}, operands, op.call.count, run.reduction, {.ranks = op.inputs()},
                                     op.stop);
}

}  // namespace

bool fits_one_round(int ranks, std::size_t bytes) noexcept {
  return ranks <= kMostRanks && bytes <= kMostBytes / static_cast<std::size_t>(ranks);
}

Task<void> one_round_allreduce(Operation& op) { return reduce_in_one_round(op, true); }
Task<void> one_round_reduce(Operation& op) { return reduce_in_one_round(op, false); }

namespace {

std::string_view one_round_reduce_obstacle(const Shape& shape) noexcept {
  if (shape.takes_partials) return kTakesNoPartials;
  return fits_one_round(shape.ranks, shape.bytes) ? std::string_view()
                                                  : "it holds the inputs of at most 64 ranks, 256K of all together";
}

Cost one_round_reduce_cost(const Shape& shape) noexcept {
  const double others = shape.ranks - 1, bytes = static_cast<double>(shape.bytes);
  return {.latencies = latencies_of(bytes),
          .messages = (shape.kind == Collective::kReduce ? 1 : 2) * others,
          .bytes = others * bytes,
          .touched = (others + 2) * bytes};
}

}  // namespace

constexpr AlgorithmInfo kOneRoundAllreduceInfo{Collective::kAllreduce, "one-round", &one_round_reduce_obstacle,
                                               &one_round_reduce_cost, &one_round_allreduce};
constexpr AlgorithmInfo kOneRoundReduceInfo{Collective::kReduce, "one-round", &one_round_reduce_obstacle,
                                            &one_round_reduce_cost, &one_round_reduce};

}  // namespace aiacc::inter

#include "collectives/hier/ordered_reduce.h"

#include <algorithm>
#include <vector>

#include "collectives/hier/allgather.h"
#include "collectives/hier/exchange_blocks.h"
#include "collectives/inter/inter_call.h"

namespace aiacc::hier {
namespace {

// Scratch memory that holds a piece of every rank's input.
constexpr std::size_t kScratchBytes = 4 << 20;

struct Ordered {
  HierCall& call;
  std::vector<Extent> shards;  // of the input, by rank
  std::uint64_t next_step = 0;

  std::size_t element() const noexcept { return call.op.call.element_bytes(); }
  Extent own() const noexcept { return shards[static_cast<std::size_t>(call.op.team.rank)]; }
  Buffer part_of(const Buffer& buffer, Extent extent) const noexcept {
    return buffer.slice(extent.begin * element(), extent.count * element());
  }
};

Call call_of(const Ordered& run, Collective kind, std::span<const Extent> blocks) {
  Call call = run.call.op.call;
  call.kind = kind;
  call.uneven = true;
  call.blocks = blocks;
  return call;
}

// Each piece has steps of its own, so that its messages do not match those of another piece. An exchange sends one message
// for each pair of ranks.
constexpr std::uint64_t kStepsOfAPiece = 1;

// Exchanges piece `piece` of `pieces` of every shard, and reduces this rank's.
Task<void> reduce_piece(Ordered& run, std::size_t piece, std::size_t pieces, Buffer arrived, Buffer result) {
  Operation& op = run.call.op;
  const auto piece_of = [&](Extent shard) {
    const inter::Parts parts{shard.count, pieces};
    return Extent{shard.begin + parts.offset(piece), parts.length(piece)};
  };
  const Extent mine = piece_of(run.own());
  std::vector<Extent> out, in;
  std::vector<Buffer> operands;
  for (const Extent& shard : run.shards) {
    out.push_back(piece_of(shard));
    in.push_back({in.size() * mine.count, mine.count});
    operands.push_back(run.part_of(arrived, in.back()));
  }
  const PartOf part{
      .whole = op.whole(), .ranks = op.inputs(), .exchange = &run.call.exchange(), .first_step = run.next_step};
  run.next_step += kStepsOfAPiece;
  Call exchange = call_of(run, Collective::kAlltoall, out);
  exchange.recv_blocks = in;
  Operation phase{op.team, exchange, op.sequence, op.stop, op.send, arrived, &part};
  HierCall phase_call(phase, run.call);
  co_await exchange_blocks(phase_call);
  if (mine.count == 0) co_return;
  const Buffer into = run.part_of(result, {mine.begin - run.own().begin, mine.count});
  co_await op.team.compute.reduce({&into, 1}, operands, mine.count, op.call.reduction, {.ranks = op.inputs()}, op.stop);
}

// Computes this rank's shard of the result.
Task<void> reduce_shard(Ordered& run, Buffer result) {
  Operation& op = run.call.op;
  std::size_t longest = 0;
  for (const Extent& shard : run.shards) longest = std::max(longest, shard.count);
  const std::size_t pieces = inter::pieces_of(longest * run.element() * run.shards.size(), kScratchBytes);
  const std::size_t in_a_piece = inter::Parts{longest, pieces}.length(0);
  inter::Scratch scratch(op, in_a_piece * run.element() * run.shards.size());
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const std::size_t mine = inter::Parts{run.own().count, pieces}.length(piece);
    const Buffer arrived = scratch.buffer().slice(0, mine * run.element() * run.shards.size());
    co_await reduce_piece(run, piece, pieces, arrived, result);
  }
}

Task<void> give_results(Ordered& run, Buffer own) {
  Operation& op = run.call.op;
  const PartOf part{
      .whole = op.whole(), .ranks = op.inputs(), .exchange = &run.call.exchange(), .first_step = run.next_step};
  const bool all = op.call.kind == Collective::kAllreduce;
  const Call give = call_of(run, all ? Collective::kAllgather : Collective::kGather, run.shards);
  Operation phase{op.team, give, op.sequence, op.stop, own, op.recv, &part};
  HierCall phase_call(phase, run.call);
  if (all) {
    co_await allgather(phase_call);
  } else {
    co_await exchange_blocks(phase_call);
  }
}

}  // namespace

bool needs_ordered_reduce(const HierCall& call) noexcept {
  return call.op.call.reduction.ordered() && !call.host_by_host();
}

Task<void> ordered_reduce(HierCall& call) {
  Operation& op = call.op;
  Ordered run{call, {}};
  run.next_step = op.part == nullptr ? 0 : op.part->first_step;
  const inter::Parts parts{op.call.count, static_cast<std::size_t>(op.team.size())};
  for (int rank = 0; rank < op.team.size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const bool scatters = op.call.kind == Collective::kReduceScatter;
    run.shards.push_back(scatters ? op.call.block(rank) : Extent{parts.offset(at), parts.length(at)});
  }
  if (op.call.kind == Collective::kReduceScatter) {
    co_await reduce_shard(run, op.recv);
    co_return;
  }
  const bool gets_result = op.call.kind == Collective::kAllreduce || op.team.rank == op.call.root;
  inter::Scratch scratch(op, gets_result ? 0 : run.own().count * run.element());
  const Buffer own = gets_result ? run.part_of(op.recv, run.own()) : scratch.buffer();
  co_await reduce_shard(run, own);
  co_await give_results(run, own);
}

}  // namespace aiacc::hier

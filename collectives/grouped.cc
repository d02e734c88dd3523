#include "collectives/grouped.h"

#include <algorithm>
#include <vector>

#include "base/task/scope.h"

namespace aiacc {
namespace {

// Tensors [first, last), of `bytes` bytes in total.
struct Pack {
  std::size_t first;
  std::size_t last;
  std::size_t bytes;
  std::uint64_t first_step;  // the first step number in the tags of its messages
};

struct Grouped {
  Operation& op;
  PackReducer& reducer;
  Exchange* exchange;
  std::vector<Pack> packs = {};
};

// An upper bound of the steps of any algorithm for this number of bytes.
std::uint64_t steps_of(std::size_t bytes, int ranks) {
  constexpr std::size_t kLeastPiece = 4 << 10;
  return 4 * static_cast<std::uint64_t>(ranks) * (bytes / kLeastPiece + 4);
}

std::vector<Pack> packs_of(const Operation& op) {
  std::vector<Pack> packs;
  const std::span<const Tensor> tensors = op.call.tensors;
  std::uint64_t step = op.part == nullptr ? 0 : op.part->first_step;
  for (std::size_t at = 0; at < tensors.size();) {
    Pack pack{at, at + 1, tensors[at].send.bytes, step};
    while (pack.bytes < kAloneBytes && pack.last < tensors.size() && tensors[pack.last].send.bytes < kAloneBytes &&
           pack.bytes + tensors[pack.last].send.bytes <= kPackBytes) {
      pack.bytes += tensors[pack.last++].send.bytes;
    }
    at = pack.last;
    if (pack.bytes == 0) continue;
    step += steps_of(pack.bytes, op.team.size());
    packs.push_back(pack);
  }
  return packs;
}

Task<void> reduce(Grouped& run, const Pack& pack, Buffer send, Buffer recv, Stop& stop) {
  Operation& op = run.op;
  const PartOf part{.whole = op.whole(), .ranks = op.inputs(), .exchange = run.exchange, .first_step = pack.first_step};
  Call call;
  call.kind = Collective::kAllreduce;
  call.reduction = op.call.reduction;
  call.count = pack.bytes / op.call.element_bytes();
  Operation phase{op.team, call, op.sequence, stop, send, recv, &part};
  co_await run.reducer.allreduce(phase);
}

Task<void> run_pack(Grouped& run, const Pack& pack, Buffer scratch, Stop& stop) {
  const std::span<const Tensor> tensors = run.op.call.tensors.subspan(pack.first, pack.last - pack.first);
  if (tensors.size() == 1) {
    co_await reduce(run, pack, tensors[0].send, tensors[0].recv, stop);
    co_return;
  }
  Compute& compute = run.op.team.compute;
  const Buffer packed = scratch.slice(0, pack.bytes);
  std::size_t at = 0;
  for (const Tensor& tensor : tensors) {
    const Buffer to = packed.slice(at, tensor.send.bytes);
    if (to.bytes > 0) co_await compute.copy(to, tensor.send, stop);
    at += to.bytes;
  }
  co_await reduce(run, pack, packed, packed, stop);
  at = 0;
  for (const Tensor& tensor : tensors) {
    const Buffer from = packed.slice(at, tensor.recv.bytes);
    if (from.bytes > 0) co_await compute.copy(tensor.recv, from, stop);
    at += from.bytes;
  }
}

Task<void> slot(Grouped& run, std::size_t index, std::size_t slots, Buffer scratch, Stop& stop) {
  for (; index < run.packs.size(); index += slots) co_await run_pack(run, run.packs[index], scratch, stop);
}

}  // namespace

Task<void> grouped_allreduce(Operation& op, PackReducer& reducer, std::span<const Buffer> scratch, Exchange* exchange) {
  Grouped run{op, reducer, exchange};
  run.packs = packs_of(op);
  Scope scope(op.team.loop, op.stop);
  for (std::size_t index = 0; index < scratch.size(); ++index) {
    scope.spawn(slot(run, index, scratch.size(), scratch[index], scope.stop()));
  }
  co_await scope.join();
}

}  // namespace aiacc

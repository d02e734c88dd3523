#include "collectives/intra/reduce_scatter.h"

#include <algorithm>
#include <vector>

#include "collectives/intra/staging.h"

namespace aiacc::intra {
namespace {

struct ReduceScatter {
  IntraCall& call;
  std::size_t element;
  std::size_t part;  // elements of one member's slice in a chunk
  Pipeline pipeline;
  std::vector<Buffer> operands;

  // The number of elements in chunk k of `member`'s slice; 0 beyond its end.
  std::size_t length(std::uint64_t k, int member) const noexcept {
    const std::size_t count = call.op.call.block(member).count;
    return std::min(part, count - std::min(count, k * part));
  }
  // The byte offset of that chunk in an input of all slices.
  std::size_t offset(std::uint64_t k, int member) const noexcept {
    return (call.op.call.block(member).begin + k * part) * element;
  }
  std::size_t offset_in_slot(int member) const noexcept { return part * element * static_cast<std::size_t>(member); }
};

std::size_t part_of_slot(const IntraCall& call) {
  constexpr std::size_t kLine = 64;
  const std::size_t bytes = IntraTeam::kSlotBytes / static_cast<std::size_t>(call.size()) / kLine * kLine;
  return std::max<std::size_t>(1, std::max(bytes, kLine) / call.op.call.element_bytes());
}

Task<void> fill(ReduceScatter& run, std::uint64_t k) {
  IntraCall& call = run.call;
  if (call.team.send_place_of(call.me(), call.number)) co_return;
  co_await run.pipeline.await_free(IntraTeam::kReduced, k);
  for (int member = 0; member < call.size(); ++member) {
    const std::size_t bytes = run.length(k, member) * run.element;
    if (member == call.me() || bytes == 0) continue;
    const Buffer from = call.op.send.slice(run.offset(k, member), bytes);
    const Buffer to{run.pipeline.slot(call.me(), k) + run.offset_in_slot(member), bytes};
    co_await call.op.team.compute.copy(to, from, call.op.stop);
  }
  run.pipeline.finished(IntraTeam::kFilled, k);
}

Task<void> reduce(ReduceScatter& run, std::uint64_t k) {
  IntraCall& call = run.call;
  const std::size_t count = run.length(k, call.me());
  const std::size_t bytes = count * run.element;
  for (int step = 0; step < call.size() && count > 0; ++step) {
    const int member = (call.me() + step) % call.size();
    Buffer from{nullptr, bytes};
    if (member == call.me()) {
      from = call.op.send.slice(run.offset(k, call.me()), bytes);
    } else if (const IntraTeam::Place place = call.team.send_place_of(member, call.number)) {
      from.data = call.view(member, *place + run.offset(k, call.me()), bytes);
    } else {
      co_await run.pipeline.await(member, IntraTeam::kFilled, k);
      from.data = run.pipeline.slot(member, k) + run.offset_in_slot(call.me());
    }
    run.operands[static_cast<std::size_t>(member)] = from;
  }
  if (count > 0) {
    const Buffer result = call.op.recv.slice(k * run.part * run.element, bytes);
    co_await call.op.team.compute.reduce({&result, 1}, run.operands, count, call.op.call.reduction,
                                         {.ranks = call.size()}, call.op.stop);
  }
  run.pipeline.finished(IntraTeam::kReduced, k);
}

}  // namespace

Task<void> reduce_scatter(IntraCall call) {
  const std::size_t part_elements = part_of_slot(call);
  std::size_t longest = 0;
  for (int member = 0; member < call.size(); ++member) longest = std::max(longest, call.op.call.block(member).count);
  const std::uint64_t chunks = (longest + part_elements - 1) / part_elements;
  ReduceScatter run{call, call.op.call.element_bytes(), part_elements, Pipeline(call, chunks),
                    std::vector<Buffer>(static_cast<std::size_t>(call.size()))};
  for (std::uint64_t step = 0; step < chunks + 1; ++step) {
    if (step < chunks) co_await fill(run, step);
    if (step >= 1) co_await reduce(run, step - 1);
  }
  co_await part(call.op, call.number);
}

}  // namespace aiacc::intra

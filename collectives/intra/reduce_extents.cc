#include "collectives/intra/reduce_extents.h"

#include <algorithm>
#include <vector>

#include "collectives/intra/staging.h"

namespace aiacc::intra {
namespace {

struct ReduceExtents {
  IntraCall& call;
  std::span<const Extents> owners;
  Buffer into;
  std::size_t element;
  std::size_t part;  // elements of one owner's stream in a chunk
  Pipeline pipeline;
  std::vector<Buffer> operands = {};

  bool is_owner(int member) const noexcept { return static_cast<std::size_t>(member) < owners.size(); }
  const Extents& of(int owner) const noexcept { return owners[static_cast<std::size_t>(owner)]; }
  // The byte offset in a slot of the element at `position` of an owner's stream.
  std::size_t in_slot(int owner, std::uint64_t k, std::size_t position) const noexcept {
    return (part * static_cast<std::size_t>(owner) + position - k * part) * element;
  }
};

std::size_t part_of_chunk(std::size_t owners, std::size_t element) {
  constexpr std::size_t kLine = 64;
  return std::max<std::size_t>(1, std::max(IntraTeam::kSlotBytes / owners / kLine * kLine, kLine) / element);
}

Task<void> fill(ReduceExtents& run, std::uint64_t k) {
  IntraCall& call = run.call;
  if (call.team.send_place_of(call.me(), call.number)) co_return;
  for (int owner = 0; run.is_owner(owner) && k >= IntraTeam::kSlots; ++owner) {
    if (owner != call.me()) co_await run.pipeline.await(owner, IntraTeam::kReduced, k - IntraTeam::kSlots);
  }
  for (int owner = 0; run.is_owner(owner); ++owner) {
    if (owner == call.me()) continue;
    const std::vector<Extents::Piece> pieces = run.of(owner).pieces(k * run.part, run.part);
    for (const auto& [position, extent] : pieces) {
      const Buffer from = call.op.send.slice(extent.begin * run.element, extent.count * run.element);
      const Buffer to{run.pipeline.slot(call.me(), k) + run.in_slot(owner, k, position), from.bytes};
      co_await call.op.team.compute.copy(to, from, call.op.stop);
    }
  }
  run.pipeline.finished(IntraTeam::kFilled, k);
}

Task<void> reduce(ReduceExtents& run, std::uint64_t k) {
  IntraCall& call = run.call;
  if (!run.is_owner(call.me())) co_return;
  for (int member = 0; member < call.size(); ++member) {
    if (member == call.me() || call.team.send_place_of(member, call.number)) continue;
    co_await run.pipeline.await(member, IntraTeam::kFilled, k);
  }
  const std::vector<Extents::Piece> pieces = run.of(call.me()).pieces(k * run.part, run.part);
  for (const auto& [position, extent] : pieces) {
    const std::size_t bytes = extent.count * run.element;
    run.operands.clear();
    for (int member = 0; member < call.size(); ++member) {
      Buffer from{run.pipeline.slot(member, k) + run.in_slot(call.me(), k, position), bytes};
      if (const IntraTeam::Place place = call.team.send_place_of(member, call.number)) {
        from.data = call.view(member, *place + extent.begin * run.element, bytes);
      }
      if (member == call.me()) from = call.op.send.slice(extent.begin * run.element, bytes);
      run.operands.push_back(from);
    }
    const std::size_t result_bytes = call.op.call.reduction.result_bytes();
    const Buffer result = run.into.slice(position * result_bytes, extent.count * result_bytes);
    co_await call.op.team.compute.reduce({&result, 1}, run.operands, extent.count, call.op.call.reduction,
                                         {.ranks = call.op.inputs()}, call.op.stop);
  }
  run.pipeline.finished(IntraTeam::kReduced, k);
}

}  // namespace

Task<void> reduce_extents(Operation& op, std::span<const Extents> owners, Buffer into) {
  op.team.host->need_staging();
  const std::uint64_t number = co_await arrive(op);
  IntraCall call(op, number);
  const std::size_t element = op.call.element_bytes();
  const std::size_t part_elements = part_of_chunk(owners.size(), element);
  std::size_t longest = 0;
  for (const Extents& extents : owners) longest = std::max(longest, extents.count());
  const std::uint64_t chunks = (longest + part_elements - 1) / part_elements;
  ReduceExtents run{call, owners, into, element, part_elements, Pipeline(call, chunks)};
  for (std::uint64_t step = 0; step < chunks + 1; ++step) {
    if (step < chunks) co_await fill(run, step);
    if (step >= 1) co_await reduce(run, step - 1);
  }
  co_await intra::part(op, number);
}

}  // namespace aiacc::intra

#include "collectives/intra/spread_extents.h"

#include <algorithm>
#include <vector>

#include "collectives/intra/staging.h"

namespace aiacc::intra {
namespace {

struct SpreadExtents {
  IntraCall& call;
  std::span<const Extents> owners;
  std::size_t element;
  std::size_t part;  // elements of a chunk
  Pipeline pipeline;

  bool is_owner(int member) const noexcept { return static_cast<std::size_t>(member) < owners.size(); }
  std::vector<Extents::Piece> pieces(int owner, std::uint64_t k) const {
    return owners[static_cast<std::size_t>(owner)].pieces(k * part, part);
  }
  Buffer in_output(Extent extent) const noexcept {
    return call.op.recv.slice(extent.begin * element, extent.count * element);
  }
  std::byte* in_slot(int owner, std::uint64_t k, std::size_t position) const {
    return pipeline.slot(owner, k) + (position - k * part) * element;
  }
};

Task<void> fill(SpreadExtents& run, std::uint64_t k) {
  IntraCall& call = run.call;
  if (!run.is_owner(call.me()) || call.team.recv_place_of(call.me(), call.number)) co_return;
  co_await run.pipeline.await_free(IntraTeam::kCopied, k);
  const std::vector<Extents::Piece> pieces = run.pieces(call.me(), k);
  for (const auto& [position, extent] : pieces) {
    const Buffer from = run.in_output(extent);
    const Buffer to{run.in_slot(call.me(), k, position), from.bytes};
    co_await call.op.team.compute.copy(to, from, call.op.stop);
  }
  run.pipeline.finished(IntraTeam::kFilled, k);
}

Task<void> copy_out(SpreadExtents& run, std::uint64_t k) {
  IntraCall& call = run.call;
  for (int step = 1; step < call.size(); ++step) {
    const int owner = (call.me() + step) % call.size();
    if (!run.is_owner(owner)) continue;
    const std::vector<Extents::Piece> pieces = run.pieces(owner, k);
    if (pieces.empty()) continue;
    const IntraTeam::Place place = call.team.recv_place_of(owner, call.number);
    if (!place) co_await run.pipeline.await(owner, IntraTeam::kFilled, k);
    for (const auto& [position, extent] : pieces) {
      const Buffer to = run.in_output(extent);
      const Buffer from{
          place ? call.view(owner, *place + extent.begin * run.element, to.bytes) : run.in_slot(owner, k, position),
          to.bytes};
      co_await call.op.team.compute.copy(to, from, call.op.stop);
    }
  }
  run.pipeline.finished(IntraTeam::kCopied, k);
}

}  // namespace

Task<void> spread_extents(Operation& op, std::span<const Extents> owners) {
  op.team.host->need_staging();
  const std::uint64_t number = co_await arrive(op);
  IntraCall call(op, number);
  const std::size_t element = op.call.element_bytes();
  const std::size_t part_elements = IntraTeam::kSlotBytes / element;
  std::size_t longest = 0;
  for (const Extents& extents : owners) longest = std::max(longest, extents.count());
  const std::uint64_t chunks = (longest + part_elements - 1) / part_elements;
  SpreadExtents run{call, owners, element, part_elements, Pipeline(call, chunks)};
  for (std::uint64_t step = 0; step < chunks + 1; ++step) {
    if (step < chunks) co_await fill(run, step);
    if (step >= 1) co_await copy_out(run, step - 1);
  }
  co_await intra::part(op, number);
}

}  // namespace aiacc::intra

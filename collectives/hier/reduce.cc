#include "collectives/hier/reduce.h"

#include <algorithm>

#include "collectives/hier/select.h"
#include "collectives/inter/double_tree.h"
#include "collectives/inter/inter_call.h"

namespace aiacc::hier {
namespace {

Buffer part_of(const Buffer& buffer, Extent extent, std::size_t element) noexcept {
  return buffer.bytes == 0 ? Buffer{} : buffer.slice(extent.begin * element, extent.count * element);
}

// Reduces the elements of `piece`. The host's sum is left in `partial` if that has bytes, otherwise in the root's result.
Task<void> reduce_piece(HierCall& call, Extent piece, Buffer partial, std::uint64_t first_step) {
  Operation& op = call.op;
  const bool is_root = op.team.rank == op.call.root;
  const std::size_t element = op.call.element_bytes();
  const Buffer send = part_of(op.send, piece, element);
  const Buffer result = is_root ? part_of(op.recv, piece, element) : Buffer{};
  const bool represents = op.team.rank == call.representative(call.host, op.call.root);
  Call here = op.call;
  here.count = piece.count;
  here.root = call.representative(call.host, op.call.root);
  here.reduction = call.reduction_on_host();
  Buffer sum = partial;
  if (sum.bytes == 0) sum = is_root ? result : send;
  co_await call.on_host(here, send, represents ? sum : Buffer{}, op.stop);
  if (!represents) co_return;
  Call between = op.call;
  between.count = piece.count;
  between.reduction = call.reduction_between();
  co_await call.between_representatives(between, call.alone() && !call.has_partials() ? send : sum, result, first_step,
                                        op.stop);
}

}  // namespace

Task<void> reduce(HierCall& call) {
  Operation& op = call.op;
  if (op.call.count == 0) co_return;
  const int representative = call.representative(call.host, op.call.root);
  const bool represents = op.team.rank == representative;
  if (!call.has_partials()) {
    const bool in_scratch = represents && op.team.rank != op.call.root && !call.alone();
    inter::Scratch scratch(op, in_scratch ? op.call.bytes() : 0);
    const Buffer partial = scratch.buffer();
    co_await reduce_piece(call, {0, op.call.count}, partial, 0);
    co_return;
  }
  // Partial sums in fp32 are twice as long as the payload; pieces bound their memory.
  const inter::Parts pieces{op.call.count, inter::pieces_of(op.call.bytes(), kSlicesBetween * kSliceBytes)};
  inter::Scratch scratch(op, represents ? pieces.length(0) * call.partial_bytes() : 0);
  const std::size_t longest = pieces.length(0) * call.partial_bytes();
  const std::uint64_t steps =
      std::max<std::uint64_t>(inter::pieces_of(longest, inter::kSliceBytes) + 1, inter::double_tree_steps(longest));
  for (std::size_t piece = 0; piece < pieces.parts; ++piece) {
    const Extent extent{pieces.offset(piece), pieces.length(piece)};
    const Buffer partial = scratch.buffer().slice(0, represents ? extent.count * call.partial_bytes() : 0);
    co_await reduce_piece(call, extent, partial, piece * steps);
  }
}

}  // namespace aiacc::hier

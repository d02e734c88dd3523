#include "collectives/intra/direct_reduce.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace aiacc::intra {
namespace {

// Bytes between two checks of the abort word: a fifth of a millisecond.
constexpr std::size_t kChunkBytes = 1 << 20;
// After this many chunks a member lets other operations of its lane run.
constexpr int kChunksAtOnce = 4;

bool gets_result(const IntraCall& call, int member) {
  return call.op.call.kind == Collective::kAllreduce || call.team.rank_of(member) == call.op.call.root;
}

}  // namespace

bool can_reduce_directly(const IntraCall& call) {
  for (int member = 0; member < call.size(); ++member) {
    if (!call.team.send_place_of(member, call.number)) return false;
    if (gets_result(call, member) && !call.team.recv_place_of(member, call.number)) return false;
  }
  return true;
}

Task<void> direct_reduce(IntraCall call) {
  Operation& op = call.op;
  const std::size_t element = op.call.element_bytes();
  const Slices slices(op.call.count, element, call.size());
  const std::size_t begin = slices.begin(call.me()) * element;
  const std::size_t bytes = slices.length(call.me()) * element;
  std::vector<Buffer> operands;
  std::vector<Buffer> results;
  for (int member = 0; member < call.size(); ++member) {
    operands.push_back({call.view(member, *call.team.send_place_of(member, call.number) + begin, bytes), bytes});
    if (!gets_result(call, member)) continue;
    results.push_back({call.view(member, *call.team.recv_place_of(member, call.number) + begin, bytes), bytes});
  }
  const std::size_t chunk_bytes = kChunkBytes / element * element;
  const std::uint64_t store_id = call.team.store_id(call.number);
  const bool waits = !op.team.compute.works_inline();
  for (std::size_t done = 0; done < bytes;) {
    {
      // Waits for an operation of another group that may be in the middle of its stores.
      if (waits) co_await TurnQueue::Await(call.domain.window_turns(), op.team.loop, op.stop);
      std::optional<TurnQueue::Holder> turn;
      if (waits) turn.emplace(call.domain.window_turns());
      StoreWindow window(call.domain, store_id);
      for (int chunk = 0; chunk < kChunksAtOnce && done < bytes; ++chunk) {
        const std::size_t now = std::min(chunk_bytes, bytes - done);
        if (chunk > 0) window.next_chunk();
        co_await op.team.compute.reduce(results, operands, now / element, op.call.reduction, {.ranks = call.size()},
                                        op.stop);
        for (Buffer& operand : operands) operand = operand.slice(now, operand.bytes - now);
        for (Buffer& result : results) result = result.slice(now, result.bytes - now);
        done += now;
      }
    }
    if (done < bytes) co_await Yield(op.team.loop, op.stop);
  }
  co_await part(op, call.number);
}

}  // namespace aiacc::intra

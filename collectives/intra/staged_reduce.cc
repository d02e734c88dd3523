#include "collectives/intra/staged_reduce.h"

#include <algorithm>
#include <vector>

#include "collectives/intra/staging.h"

namespace aiacc::intra {
namespace {

// The layout of a member's chunk: `part` elements for each member to reduce, in the order of members.
struct Layout {
  std::size_t count;    // elements of the operation
  std::size_t element;  // bytes
  std::size_t part;     // elements per member and chunk
  int members;

  Layout(const IntraCall& call) noexcept
      : count(call.op.call.count), element(call.op.call.element_bytes()), part(0), members(call.size()) {
    // At least kChunksWanted chunks, so that filling, reducing and copying overlap, of at least kLeastBytes, so that a
    // chunk costs more than its flags. Measured with bench/host, 2 and 4 ranks on 2 cores.
    constexpr std::size_t kChunksWanted = 4;
    constexpr std::size_t kLeastBytes = 64 << 10;
    const std::size_t wanted = std::clamp(call.op.call.bytes() / kChunksWanted, kLeastBytes, IntraTeam::kSlotBytes);
    constexpr std::size_t kLine = 64;
    const std::size_t part_bytes = std::max(wanted / static_cast<std::size_t>(members) / kLine * kLine, kLine);
    part = std::max<std::size_t>(1, part_bytes / element);
  }
  std::size_t chunk() const noexcept { return part * static_cast<std::size_t>(members); }
  std::uint64_t chunks() const noexcept { return (count + chunk() - 1) / chunk(); }
  // The elements of a member's part of a chunk; the last part may be shorter.
  std::size_t begin(std::uint64_t k, int member) const noexcept {
    return std::min(count, k * chunk() + part * static_cast<std::size_t>(member));
  }
  std::size_t length(std::uint64_t k, int member) const noexcept {
    return std::min(count, begin(k, member) + part) - begin(k, member);
  }
  std::size_t offset_in_slot(int member) const noexcept { return part * element * static_cast<std::size_t>(member); }
};

struct StagedReduce {
  IntraCall& call;
  Layout layout;
  Pipeline pipeline;
  int root;  // the member that gets the result; -1: all
  std::vector<Buffer> operands = {};
  std::vector<Buffer> results = {};

  bool gets_result(int member) const noexcept { return root < 0 || root == member; }
  Buffer part_of(const Buffer& buffer, std::uint64_t k, int member) const noexcept {
    return buffer.slice(layout.begin(k, member) * layout.element, layout.length(k, member) * layout.element);
  }
};

Task<void> fill(StagedReduce& run, std::uint64_t k) {
  IntraCall& call = run.call;
  const int me = call.me();
  co_await run.pipeline.await_free(IntraTeam::kReduced, k);
  if (!call.team.send_place_of(me, call.number)) {
    std::byte* slot = run.pipeline.slot(me, k);
    for (int member = 0; member < call.size(); ++member) {
      const Buffer from = run.part_of(call.op.send, k, member);
      if (member == me || from.bytes == 0) continue;
      const Buffer to{slot + run.layout.offset_in_slot(member), from.bytes};
      co_await call.op.team.compute.copy(to, from, call.op.stop);
    }
  }
  run.pipeline.finished(IntraTeam::kFilled, k);
}

Task<void> reduce(StagedReduce& run, std::uint64_t k) {
  IntraCall& call = run.call;
  const int me = call.me();
  const std::size_t bytes = run.layout.length(k, me) * run.layout.element;
  co_await run.pipeline.await_all(IntraTeam::kFilled, k);
  if (run.root < 0) {
    co_await run.pipeline.await_free(IntraTeam::kCopied, k);
  } else if (me != run.root && k >= IntraTeam::kSlots) {
    co_await run.pipeline.await(run.root, IntraTeam::kCopied, k - IntraTeam::kSlots);
  }
  if (bytes > 0) {
    run.operands.clear();
    for (int member = 0; member < call.size(); ++member) {
      const IntraTeam::Place place = call.team.send_place_of(member, call.number);
      Buffer from{run.pipeline.slot(member, k) + run.layout.offset_in_slot(me), bytes};
      if (place) from.data = call.view(member, *place + run.layout.begin(k, me) * run.layout.element, bytes);
      if (member == me) from = run.part_of(call.op.send, k, me);
      run.operands.push_back(from);
    }
    run.results.clear();
    if (run.root != me) run.results.push_back({run.pipeline.result_slot(me, k), bytes});
    if (run.gets_result(me)) run.results.push_back(run.part_of(call.op.recv, k, me));
    co_await call.op.team.compute.reduce(run.results, run.operands, run.layout.length(k, me), call.op.call.reduction,
                                         {.ranks = call.size()}, call.op.stop);
  }
  run.pipeline.finished(IntraTeam::kReduced, k);
}

Task<void> copy_out(StagedReduce& run, std::uint64_t k) {
  IntraCall& call = run.call;
  if (!run.gets_result(call.me())) co_return;
  for (int step = 1; step < call.size(); ++step) {
    const int member = (call.me() + step) % call.size();
    co_await run.pipeline.await(member, IntraTeam::kReduced, k);
    const Buffer to = run.part_of(call.op.recv, k, member);
    const Buffer from{run.pipeline.result_slot(member, k), to.bytes};
    if (to.bytes > 0) co_await call.op.team.compute.copy(to, from, call.op.stop);
  }
  run.pipeline.finished(IntraTeam::kCopied, k);
}

}  // namespace

Task<void> staged_reduce(IntraCall call) {
  const bool all = call.op.call.kind == Collective::kAllreduce;
  const Layout layout(call);
  StagedReduce run{call, layout, Pipeline(call, layout.chunks()), all ? -1 : call.team.member_of(call.op.call.root)};
  const std::uint64_t chunks = run.pipeline.chunks();
  for (std::uint64_t step = 0; step < chunks + 2; ++step) {
    if (step < chunks) co_await fill(run, step);
    if (step >= 1 && step - 1 < chunks) co_await reduce(run, step - 1);
    if (step >= 2) co_await copy_out(run, step - 2);
  }
  // A member that has received all parts knows that all members have read its input, which may be shared; other members
  // wait for that here.
  if (!all) co_await part(call.op, call.number);
}

}  // namespace aiacc::intra

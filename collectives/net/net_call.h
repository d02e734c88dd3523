// NetCall: what every algorithm over messages starts from. The operation's exchange, tags that no two algorithms share,
// scratch memory, and how elements are cut into slices and segments.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/data/scratch_pool.h"
#include "base/task/scope.h"
#include "collectives/operation.h"
#include "transports/exchange.h"
#include "transports/mailbox.h"

namespace aiacc::net {

// Part of every tag, so that algorithms that follow each other in one operation never match each other's messages.
enum class Algorithm : std::uint32_t {
  kPointToPoint = 0,
  kRingAllreduce = 1,
  kRecursiveDoubling = 2,
  kBinomialBroadcast = 3,
  kBinomialReduce = 4,
  kRingAllgather = 5,
  kRingReduceScatter = 6,
  kBarrier = 7,
  kAlltoall = 8,
  kGather = 9,
  kScatter = 10,
  kOrderedReduce = 11,
  kOneRoundReduce = 12,
  kHalvingDoubling = 13,
};

// Wraps after 2^28 steps, long after their predecessors were received.
constexpr std::uint32_t tag_of(Algorithm algorithm, std::uint64_t step) noexcept {
  return static_cast<std::uint32_t>(algorithm) << 28 | static_cast<std::uint32_t>(step & 0x0fff'ffff);
}

// Those who take part in the algorithm, by their places in it: all of the team in the order of their ranks, or the members
// of a part (PartOf).
inline bool is_among_some(const Operation& op) noexcept { return op.part != nullptr && !op.part->members.empty(); }
inline int place_in(const Operation& op) noexcept { return is_among_some(op) ? op.part->place : op.team.rank; }
inline int ranks_in(const Operation& op) noexcept {
  return is_among_some(op) ? static_cast<int>(op.part->members.size()) : op.team.size();
}
inline int place_of(const Operation& op, int rank) noexcept {
  if (!is_among_some(op)) return rank;
  return static_cast<int>(std::find(op.part->members.begin(), op.part->members.end(), rank) - op.part->members.begin());
}

// Ranks here are those places.
class NetCall {
 public:
  NetCall(Operation& operation, Algorithm algorithm) : op(operation), algorithm_(algorithm) {
    if (op.part != nullptr && op.part->exchange != nullptr) return;
    own_.emplace(*op.team.mailbox, op.team.view, op.team.rank, op.sequence, op.call.fingerprint(),
                 CallNote(op.call.summary()));
    own_->set_urgent(op.urgent);
  }

  int rank() const noexcept { return place_in(op); }
  int size() const noexcept { return ranks_in(op); }
  int root() const noexcept { return place_of(op, op.call.root); }
  // What passes between this rank and that one is not this part's business.
  bool skips(int place) const noexcept {
    if (op.part == nullptr || !op.part->skips_host) return false;
    return op.team.view->host_of(member(place)) == op.team.view->host_of(op.team.rank);
  }
  // An extent of elements.
  Buffer part_of(const Buffer& buffer, Extent extent) const noexcept {
    return buffer.slice(extent.begin * element_bytes(), extent.count * element_bytes());
  }
  std::size_t element_bytes() const noexcept { return op.call.element_bytes(); }
  Compute& compute() const noexcept { return op.team.compute; }

  // `step` numbers the messages between one pair of ranks in this algorithm, the same at both ends.
  Transfer send(int to, std::uint64_t step, Buffer data, Stop& stop) {
    return exchange().send(member(to), tag(step), data, stop);
  }
  Transfer recv(int from, std::uint64_t step, Buffer into, Stop& stop) {
    return exchange().recv(member(from), tag(step), into, stop);
  }
  Transfer send_recv(int to, Buffer data, int from, Buffer into, std::uint64_t step, Stop& stop) {
    return exchange().send_recv({member(to), tag(step), data}, {member(from), tag(step), into}, stop);
  }
  // That message will come, of so many bytes: a large one needs a place at its receiver, which is asked for meanwhile.
  void announce(int to, std::uint64_t step, std::size_t bytes) { exchange().announce(member(to), tag(step), bytes); }

  Operation& op;

 private:
  std::uint32_t tag(std::uint64_t step) const noexcept {
    return tag_of(algorithm_, (op.part == nullptr ? 0 : op.part->first_step) + step);
  }
  Exchange& exchange() noexcept { return own_ ? *own_ : *op.part->exchange; }
  int member(int place) const noexcept {
    return is_among_some(op) ? op.part->members[static_cast<std::size_t>(place)] : place;
  }

  std::optional<Exchange> own_;  // unless the operation is a part of one that has it
  Algorithm algorithm_;
};

// Memory for what arrives before it is reduced. Like the operation's own buffers, it has no bytes in byte-free simulation.
class Scratch {
 public:
  Scratch(const Operation& op, std::size_t bytes) : pool_(op.team.mailbox->scratch()), bytes_(bytes) {
    const bool elided = op.send.data == nullptr && op.recv.data == nullptr;
    if (!elided) memory_ = pool_.take(bytes);
  }
  ~Scratch() { pool_.give_back(std::move(memory_)); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Buffer buffer() noexcept { return Buffer{memory_.data.get(), bytes_}; }

 private:
  ScratchPool& pool_;
  std::size_t bytes_;
  ScratchPool::Block memory_;
};

// `count` elements in `parts` parts that differ by one element at most, the longer ones first.
struct Parts {
  std::size_t count;
  std::size_t parts;
  std::size_t offset(std::size_t part) const noexcept { return part * (count / parts) + std::min(part, count % parts); }
  std::size_t length(std::size_t part) const noexcept { return count / parts + (part < count % parts ? 1 : 0); }
};

// One block of elements for each who takes part, as allgather and reduce-scatter have them: one after another with
// call.count elements each, or where the call says. All are cut into the same number of segments.
class Blocks {
 public:
  // At most `largest` bytes in a segment.
  Blocks(const Operation& op, std::size_t largest) : count_(op.call.count) {
    blocks_ = op.call.blocks;
    std::size_t longest = blocks_.empty() ? count_ : 0;
    for (const Extent& block : blocks_) longest = std::max(longest, block.count);
    segments_ = std::max<std::size_t>(1, (longest * op.call.element_bytes() + largest - 1) / largest);
    longest_segment_ = Parts{longest, segments_}.length(0);
  }

  std::size_t segments() const noexcept { return segments_; }
  std::size_t longest_segment() const noexcept { return longest_segment_; }
  bool empty() const noexcept { return longest_segment_ == 0; }
  Extent of(int member) const noexcept {
    const auto at = static_cast<std::size_t>(member);
    return blocks_.empty() ? Extent{count_ * at, count_} : blocks_[at];
  }
  // A segment of it, from the beginning of the block.
  Extent segment_of(int member, std::size_t segment) const noexcept {
    const Parts parts{of(member).count, segments_};
    return {parts.offset(segment), parts.length(segment)};
  }

 private:
  std::size_t count_;
  std::span<const Extent> blocks_;
  std::size_t segments_ = 1;
  std::size_t longest_segment_ = 0;
};

// Bytes of a slice that travels at once. At 100 Gb/s and 5 µs of latency a quarter MiB keeps a link busy four times as long
// as it waits; together with kLanes it bounds the scratch memory of a call to one or two MiB.
inline constexpr std::size_t kSliceBytes = 256 << 10;
// Pipelines that run side by side, so that one travels while another is reduced.
inline constexpr std::size_t kLanes = 4;

// How many pieces of at most `largest` bytes make up `bytes`; at least one.
inline std::size_t pieces_of(std::size_t bytes, std::size_t largest) noexcept {
  return std::max<std::size_t>(1, (bytes + largest - 1) / largest);
}

// Runs lane(context, i, lanes, stop) for every lane i side by side, and gives up as one. A template over a plain function:
// a coroutine lambda must not capture.
template <class Context>
Task<void> side_by_side(Context& context, std::size_t lanes,
                        Task<void> (*lane)(Context& context, std::size_t index, std::size_t lanes, Stop& stop)) {
  Operation& op = context.call.op;
  if (lanes == 1) {
    co_await lane(context, 0, 1, op.stop);
    co_return;
  }
  Scope scope(op.team.loop, op.stop);
  for (std::size_t index = 0; index < lanes; ++index) scope.spawn(lane(context, index, lanes, scope.stop()));
  co_await scope.join();
}

}  // namespace aiacc::net

// collectives/inter: algorithms among ranks of several hosts, over the mailbox; one a file. Not here: shared memory
// (collectives/intra) and the composition of the two (collectives/hier).
//
// InterCall: the common base of these algorithms: the operation's exchange, tags that differ between algorithms,
// scratch memory, and how elements are cut into slices and segments.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/task/scope.h"
#include "collectives/operation.h"
#include "transports/exchange.h"
#include "transports/mailbox.h"

namespace aiacc::inter {

// Part of every tag, so that consecutive algorithms of one operation never match each other's messages.
enum class Algorithm : std::uint16_t {
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
  kCodedAllreduce = 14,
  kBruckAlltoall = 15,
  kBinomialGather = 16,  // and scatter
  kChainBroadcast = 17,
  kDoubleTree = 18,
  kDoublingAllgather = 19,
  kHalvingReduceScatter = 20,
};

// Steps wrap after 2^32, long after the messages with the same number were received.
constexpr Tag tag_of(Algorithm algorithm, std::uint64_t step) noexcept {
  return {static_cast<std::uint32_t>(step), static_cast<std::uint16_t>(algorithm)};
}

// The participants of the algorithm, by position: the whole team in rank order, or the members of a part (PartOf).
inline bool is_among_some(const Operation& op) noexcept { return op.part != nullptr && !op.part->members.empty(); }
inline int position_in(const Operation& op) noexcept { return is_among_some(op) ? op.part->position : op.team.rank; }
inline int ranks_in(const Operation& op) noexcept {
  return is_among_some(op) ? static_cast<int>(op.part->members.size()) : op.team.size();
}
inline int position_of(const Operation& op, int rank) noexcept {
  if (!is_among_some(op)) return rank;
  return static_cast<int>(std::find(op.part->members.begin(), op.part->members.end(), rank) - op.part->members.begin());
}

// Bytes of a slice, the unit of transfer. At 100 Gb/s and 5 µs of latency a quarter MiB keeps a link busy four times as
// long as it waits; together with the number of slots it bounds the scratch memory of a call: to one or two MiB over one
// connection, and to eight times that over several. An alltoall in place has a whole block there.
inline constexpr std::size_t kSliceBytes = 256 << 10;
// Concurrent pipelines, so that one slice travels while another is reduced.
inline constexpr std::size_t kSlots = 4;
// The same where several connections share a payload. Each has a queue of its own in the kernel, behind which the slice's last
// chunk waits, and then its acknowledgement and the next CTS behind what the peer sends. Over four connections at 300 Mbit/s each
// on a line of 1 Gbit/s (ring_streams_test.cc) 16 slots reach 92 % of the line, and 32 reach 97 %.
inline constexpr std::size_t kMostSlots = 32;

// A call with so few long messages that two members which send each other one do so without an RTS (Mailbox::kLongSwapBytes).
inline bool swaps_long(const Call& call) noexcept {
  return call.kind != Collective::kGroupedAllreduce && call.reduction.codec == Codec::kNone &&
         call.bytes() <= Peer::kSwapCreditBytes;
}

// "Ranks" in InterCall are these positions.
class InterCall {
 public:
  InterCall(Operation& operation, Algorithm algorithm) : op(operation), algorithm_(algorithm) {
    if (op.part != nullptr && op.part->exchange != nullptr) return;
    own_.emplace(*op.team.mailbox, op.team.view, op.team.rank, op.sequence, op.call.fingerprint(),
                 CallNote(op.call.summary()));
    own_->set_traffic(op.traffic);
    if (swaps_long(op.call)) own_->swap_long();
  }

  int rank() const noexcept { return position_in(op); }
  int size() const noexcept { return ranks_in(op); }
  int root() const noexcept { return position_of(op, op.call.root); }
  // Another part of the operation transfers the blocks between this rank and that one.
  bool skips(int position) const noexcept {
    if (op.part == nullptr || !op.part->skips_host) return false;
    return op.team.view->host_of(member(position)) == op.team.view->host_of(op.team.rank);
  }
  // The part of `buffer` with these elements.
  Buffer part_of(const Buffer& buffer, Extent extent) const noexcept {
    return buffer.slice(extent.begin * element_bytes(), extent.count * element_bytes());
  }
  std::size_t element_bytes() const noexcept { return op.call.element_bytes(); }
  Compute& compute() const noexcept { return op.team.compute; }

  // `step` numbers the messages between one pair of ranks in this algorithm, the same at both ends.
  // `swaps`: that rank is sent something in the same step, and sends something.
  Transfer send(int to, std::uint64_t step, Buffer data, Stop& stop, bool swaps = false) {
    return exchange().send(member(to), tag(step), data, stop, nullptr, swaps);
  }
  Transfer recv(int from, std::uint64_t step, Buffer into, Stop& stop, bool swaps = false) {
    return exchange().recv(member(from), tag(step), into, stop, nullptr, swaps);
  }
  // To be run beside a receive whose message is worked on before this one is acknowledged.
  Task<void> send_aside(int to, std::uint64_t step, Buffer data, bool swaps, Stop& stop) {
    co_await exchange().send(member(to), tag(step), data, stop, nullptr, swaps);
  }
  // Receives a message whose length the sender decides (codecs); Transfer::received() is its length.
  Transfer recv_at_most(int from, std::uint64_t step, Buffer into, Stop& stop) {
    return exchange().recv_at_most(member(from), tag(step), into, stop);
  }
  Transfer send_recv(int to, Buffer data, int from, Buffer into, std::uint64_t step, Stop& stop) {
    return exchange().send_recv({member(to), tag(step), data}, {member(from), tag(step), into}, stop);
  }
  // Announces that message, of `bytes` bytes: if it is large, its RTS leaves now, so that the CTS has arrived when the
  // payload is ready. `swaps`: that rank sends this one something in the same transfer.
  void send_early_rts(int to, std::uint64_t step, std::size_t bytes, bool swaps = false) {
    exchange().send_early_rts(member(to), tag(step), bytes, swaps);
  }
  // How many of `pieces` pipelines to run at a time, of which each sends to this rank or receives from it. Ranks may have different
  // numbers: each runs the oldest pieces that it has not finished, so all run the oldest of all.
  std::size_t slots_towards(int peer, std::size_t pieces) const noexcept {
    const auto chunks = static_cast<std::size_t>(exchange().chunks_in_flight(member(peer)));
    const bool shared = chunks > MessagePort::kChunksOfOneConnection;
    return std::min(pieces, shared ? std::min(kSlots * chunks, kMostSlots) : kSlots);
  }

  Operation& op;

 private:
  Tag tag(std::uint64_t step) const noexcept {
    return tag_of(algorithm_, (op.part == nullptr ? 0 : op.part->first_step) + step);
  }
  Exchange& exchange() noexcept { return own_ ? *own_ : *op.part->exchange; }
  const Exchange& exchange() const noexcept { return own_ ? *own_ : *op.part->exchange; }
  int member(int position) const noexcept {
    return is_among_some(op) ? op.part->members[static_cast<std::size_t>(position)] : position;
  }

  std::optional<Exchange> own_;  // unless the operation is part of one that has an exchange
  Algorithm algorithm_;
};

// Memory for received operands until they are reduced. It is of the same kind as the operation's own buffers: device
// memory for device buffers, without bytes in byte-free simulation.
class Scratch {
 public:
  Scratch(const Operation& op, std::size_t bytes)
      : like_(op.recv.on_host() ? op.send : op.recv), pool_(op.team.compute.scratch(like_)), bytes_(bytes) {
    const bool elided = op.send.data == nullptr && op.recv.data == nullptr;
    if (!elided) memory_ = pool_.take(bytes);
  }
  ~Scratch() { pool_.give_back(memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Buffer buffer() const noexcept {
    Buffer buffer;  // has the right kind even without bytes
    buffer.data = memory_.data;
    buffer.bytes = bytes_;
    buffer.kind = like_.kind;
    buffer.device = like_.device;
    return buffer;
  }

 private:
  Buffer like_;
  ScratchPool& pool_;
  std::size_t bytes_;
  Buffer memory_;
};

// Splits `count` elements into `parts` parts whose lengths differ by at most one, the longer ones first.
struct Parts {
  std::size_t count;
  std::size_t parts;
  std::size_t offset(std::size_t part) const noexcept { return part * (count / parts) + std::min(part, count % parts); }
  std::size_t length(std::size_t part) const noexcept { return count / parts + (part < count % parts ? 1 : 0); }
};

// The blocks of allgather and reduce-scatter, one for each participant: consecutive, with call.count elements each, or
// with the lengths and offsets of an uneven call. All are cut into the same number of segments.
class Blocks {
 public:
  // A segment has at most `largest` bytes.
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
  // A segment of a block, relative to the block's beginning.
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

// Number of pieces of at most `largest` bytes in `bytes`; at least one.
inline std::size_t pieces_of(std::size_t bytes, std::size_t largest) noexcept {
  return std::max<std::size_t>(1, (bytes + largest - 1) / largest);
}

// Runs slot(context, i, slots, stop) concurrently for every slot i; if one fails, all are stopped. The function is a
// template argument because a coroutine lambda must not capture.
template <class Context>
Task<void> side_by_side(Context& context, std::size_t slots,
                        Task<void> (*slot)(Context& context, std::size_t index, std::size_t slots, Stop& stop)) {
  Operation& op = context.call.op;
  if (slots == 1) {
    co_await slot(context, 0, 1, op.stop);
    co_return;
  }
  Scope scope(op.team.loop, op.stop);
  for (std::size_t index = 0; index < slots; ++index) scope.spawn(slot(context, index, slots, scope.stop()));
  co_await scope.join();
}

}  // namespace aiacc::inter

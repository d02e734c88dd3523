// NetCall: what every algorithm over messages starts from. The operation's exchange, tags that no two algorithms share,
// scratch memory, and how elements are cut into slices and segments.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/task/scope.h"
#include "collectives/operation.h"
#include "transports/exchange.h"

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
};

class NetCall {
 public:
  NetCall(Operation& operation, Algorithm algorithm)
      : op(operation),
        exchange_(*operation.team.mailbox, operation.team.view, operation.team.rank, operation.sequence,
                  operation.call.fingerprint(), CallNote(operation.call)),
        tag_(static_cast<std::uint32_t>(algorithm) << 28) {}

  int rank() const noexcept { return op.team.rank; }
  int size() const noexcept { return op.team.size(); }
  std::size_t element_bytes() const noexcept { return op.call.element_bytes(); }
  Compute& compute() const noexcept { return op.team.compute; }

  // `step` numbers the messages between one pair of ranks in this algorithm, the same at both ends.
  Transfer send(int to, std::uint64_t step, Buffer data, Stop& stop) {
    return exchange_.send(to, tag(step), data, stop);
  }
  Transfer recv(int from, std::uint64_t step, Buffer into, Stop& stop) {
    return exchange_.recv(from, tag(step), into, stop);
  }
  Transfer send_recv(int to, Buffer data, int from, Buffer into, std::uint64_t step, Stop& stop) {
    return exchange_.send_recv({to, tag(step), data}, {from, tag(step), into}, stop);
  }

  Operation& op;

 private:
  // Wraps after 2^28 steps, long after their predecessors were received.
  std::uint32_t tag(std::uint64_t step) const noexcept { return tag_ | static_cast<std::uint32_t>(step & 0x0fff'ffff); }

  Exchange exchange_;
  std::uint32_t tag_;
};

// Memory for what arrives before it is reduced. Like the operation's own buffers, it has no bytes in byte-free simulation.
class Scratch {
 public:
  Scratch(const Operation& op, std::size_t bytes) : bytes_(bytes) {
    const bool elided = op.send.data == nullptr && op.recv.data == nullptr;
    if (!elided) memory_.resize(bytes);
  }
  Buffer buffer() noexcept { return Buffer{memory_.empty() ? nullptr : memory_.data(), bytes_}; }

 private:
  std::size_t bytes_;
  std::vector<std::byte> memory_;
};

// `count` elements in `parts` parts that differ by one element at most, the longer ones first.
struct Parts {
  std::size_t count;
  std::size_t parts;
  std::size_t offset(std::size_t part) const noexcept { return part * (count / parts) + std::min(part, count % parts); }
  std::size_t length(std::size_t part) const noexcept { return count / parts + (part < count % parts ? 1 : 0); }
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

// Team: one group as one rank sees it, for as long as the group lives. Operation: one collective call on it.
// Algorithms (one a file) are coroutines over an Operation; what they wait for gives up when its Stop is requested.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/data/compute.h"
#include "base/data/reduction.h"
#include "base/task/loop.h"
#include "base/view.h"

namespace aiacc {

class HostTeam;  // collectives/host/host_team.h: the members on this host, their memory and lines
class Mailbox;   // transports/mailbox.h: matched messages to any member
class Exchange;  // transports/exchange.h: one operation's part in the mailbox

struct Team {
  ViewPtr view;
  int rank = 0;
  Loop& loop;
  Compute& compute;
  HostTeam* host = nullptr;    // null if this rank is alone on its host
  Mailbox* mailbox = nullptr;  // null if all members share this host

  int size() const noexcept { return view->size(); }
};

enum class Collective : std::uint8_t {
  kAllreduce = 1,
  kReduce,
  kBroadcast,
  kAllgather,
  kReduceScatter,
  kBarrier,
  kSend,
  kRecv,
  kAlltoall,
  kGather,
  kScatter,
  kSendrecv,
  kRecvAny,
  kGroupedAllreduce,
};

// Point to point: matched by sender and tag, with tickets of their own.
constexpr bool is_message(Collective kind) noexcept {
  return kind == Collective::kSend || kind == Collective::kRecv || kind == Collective::kSendrecv ||
         kind == Collective::kRecvAny;
}

// Elements of a buffer.
struct Extent {
  std::size_t begin = 0;
  std::size_t count = 0;
  std::size_t end() const noexcept { return begin + count; }
};

// One tensor of a grouped allreduce.
struct Tensor {
  Buffer send;
  Buffer recv;  // may equal send
};

// What a call looks like from outside, without any pointer: it travels, so that others can name it.
struct CallSummary {
  Collective kind = Collective::kBarrier;
  bool uneven = false;
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::uint32_t record_bytes = 0;  // of a user-defined operator
  std::uint64_t count = 0;
  std::uint64_t recv_count = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::int32_t root = 0;
  std::int32_t from = 0;
  std::uint32_t tag = 0;
  std::uint32_t recv_tag = 0;
  std::uint32_t parts = 0;   // blocks or tensors
  std::uint32_t layout = 0;  // a hash of their lengths
  char op_name[16] = {};     // of a user-defined operator, cut

  std::string describe() const;  // "allreduce of 1024 fp32, sum"
};

// What members must agree on. Its hash travels in headers and control lines; a difference is kMismatch on all of them.
//
// Uneven calls (the ABI's functions that end in v) have a block for each rank, by rank; those of members on a host, as a
// phase of a call over hosts has them, by place. What members agree on there: all lengths of allgather and reduce-scatter;
// of gather, scatter and all-to-all only that they are uneven and of which type: lengths are compared where the bytes pass.
struct Call {
  Collective kind = Collective::kBarrier;
  bool uneven = false;
  std::size_t count =
      0;  // elements, as the ABI's function counts them; of an uneven or grouped call those of all its parts
  Reduction reduction;    // reduction.type is the element type of every call
  int root = 0;           // of reduce, broadcast, gather and scatter; peer of send and recv, receiver of sendrecv
  std::uint32_t tag = 0;  // of send and recv
  // The receiving half of sendrecv.
  std::size_t recv_count = 0;
  int from = 0;
  std::uint32_t recv_tag = 0;
  // Of an uneven call: of all-gather in op.recv, of reduce-scatter and all-to-all in op.send, at the root of gather in
  // op.recv, at that of scatter in op.send.
  std::span<const Extent> blocks = {};
  std::span<const Extent> recv_blocks = {};  // of all-to-all in op.recv
  std::span<const Tensor> tensors = {};      // of a grouped allreduce
  int* sender = nullptr;                     // of a recv from any: where its rank goes

  std::size_t element_bytes() const noexcept { return reduction.element_bytes(); }
  std::size_t bytes() const noexcept { return count * element_bytes(); }
  // The block of a rank or place: of an even call one after another with `count` elements each.
  Extent block(int place) const noexcept {
    const auto at = static_cast<std::size_t>(place);
    return blocks.empty() ? Extent{at * count, count} : blocks[at];
  }
  Extent recv_block(int place) const noexcept {
    const auto at = static_cast<std::size_t>(place);
    return recv_blocks.empty() ? Extent{at * count, count} : recv_blocks[at];
  }
  std::uint64_t fingerprint() const noexcept;
  CallSummary summary() const noexcept;
  std::string describe() const { return summary().describe(); }
};

// What an operation knows that is a part of another one: a phase of it on one host, or between some ranks of several.
struct PartOf {
  const Call& whole;  // what members compare, and what sentences name
  int ranks;          // of the whole: what AVG divides by
  // Of a part over messages: the whole's exchange, which ranks of the team take part, in the algorithm's order, and which
  // of them this one is.
  Exchange* exchange = nullptr;
  std::span<const int> members = {};
  int place = 0;
  // Added to the steps in tags, so that parts of one operation that are under way at once never match each other's.
  std::uint64_t first_step = 0;
  // Blocks for ranks of this host travel in another part.
  bool skips_host = false;
};

struct Operation {
  Team& team;
  Call call;
  std::uint64_t sequence = 0;  // ticket in the group: equal on all members for the same call
  Stop& stop;
  Buffer send;  // empty where the call has none
  Buffer recv;  // may equal send
  const PartOf* part = nullptr;
  bool urgent = false;  // its messages between hosts go before those of others

  // What the caller called.
  const Call& whole() const noexcept { return part == nullptr ? call : part->whole; }
  // The inputs that a result is made of.
  int inputs() const noexcept { return part == nullptr ? team.size() : part->ranks; }
};

}  // namespace aiacc

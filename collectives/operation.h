// Team: one group as one rank sees it, for as long as the group lives. Operation: one collective call on it. Algorithms
// (one a file) are coroutines over an Operation; their waits end when the Operation's Stop is requested.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/data/compute.h"
#include "base/data/reduction.h"
#include "base/task/loop.h"
#include "base/view.h"
#include "transports/operation_traffic.h"
#include "transports/wire_id.h"

namespace aiacc {

class IntraTeam;  // collectives/intra/intra_team.h: the members on this host, their memory and lines
namespace hier {
class LocalTeam;  // collectives/hier/local_team.h: the members on this host, of a group over several hosts
}
class Mailbox;   // transports/mailbox.h: matched messages to any member
class Exchange;  // transports/exchange.h: one operation's part in the mailbox

namespace inter {
struct AlgorithmInfo;  // collectives/inter/algorithm_info.h: an algorithm between hosts
class Selector;        // collectives/inter/selector.h: the choice among them
}  // namespace inter

struct Team {
  ViewPtr view;
  int rank = 0;
  Loop& loop;
  Compute& compute;
  // Members on this host other than this rank, if any: `host` if all members of the group are on it, otherwise `local`.
  IntraTeam* host = nullptr;
  Mailbox* mailbox = nullptr;  // null if all members share this host
  hier::LocalTeam* local = nullptr;
  inter::Selector* selector = nullptr;  // null: the usual algorithms

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

// A description of a call without pointers. It is sent to other members, so that they can name the call.
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
  std::uint32_t layout = 0;  // hash of their lengths
  char op_name[16] = {};     // of a user-defined operator, truncated

  std::string describe() const;  // "allreduce of 1024 fp32, sum"
};

// What members must agree on. Its hash is sent in headers and control lines; a difference is kMismatch on all members.
//
// Uneven calls (the ABI's functions that end in v) have a block for each rank, indexed by rank; in a phase on one host,
// indexed by local rank. For allgather and reduce-scatter members agree on all lengths; for gather, scatter and
// all-to-all only on the call being uneven and on its type: the two ends of each block compare its length.
struct Call {
  // Not defaulted: g++ would set all of it to zero first, by an instruction that takes as long as the rest of a small call's checks.
  Call() noexcept {}  // NOLINT(modernize-use-equals-default)

  Collective kind = Collective::kBarrier;
  bool uneven = false;
  std::size_t count =
      0;  // elements, as the ABI's function counts them; in an uneven or grouped call the total of all parts
  Reduction reduction;    // reduction.type is the element type of every call
  int root = 0;           // of reduce, broadcast, gather and scatter; peer of send and recv, receiver of sendrecv
  std::uint32_t tag = 0;  // of send and recv
  // For sendrecv: the receiving half.
  std::size_t recv_count = 0;
  int from = 0;
  std::uint32_t recv_tag = 0;
  // Blocks of an uneven call: in op.recv for all-gather and for gather at the root; in op.send for reduce-scatter,
  // all-to-all and for scatter at the root.
  std::span<const Extent> blocks = {};
  std::span<const Extent> recv_blocks = {};  // of all-to-all in op.recv
  std::span<const Tensor> tensors = {};      // of a grouped allreduce
  int* sender = nullptr;                     // of a recv from any: receives the sender's rank
  // Between hosts, where it can serve and the payload is not short; null: as selection chooses. The same on all members, who do not
  // compare it.
  const inter::AlgorithmInfo* preferred = nullptr;

  std::size_t element_bytes() const noexcept { return reduction.element_bytes(); }
  std::size_t bytes() const noexcept { return count * element_bytes(); }
  // The block of a rank or local rank. In an even call blocks are consecutive, with `count` elements each.
  Extent block(int position) const noexcept {
    const auto at = static_cast<std::size_t>(position);
    return blocks.empty() ? Extent{at * count, count} : blocks[at];
  }
  Extent recv_block(int position) const noexcept {
    const auto at = static_cast<std::size_t>(position);
    return recv_blocks.empty() ? Extent{at * count, count} : recv_blocks[at];
  }
  std::uint64_t fingerprint() const noexcept;
  CallSummary summary() const noexcept;
  std::string describe() const { return summary().describe(); }
};

// Describes an operation that is part of another one: a phase on one host, or between some ranks of several hosts.
struct PartOf {
  const Call& whole;  // the call that members compare and that messages name
  int ranks;          // of the whole: what AVG divides by
  // The exchange of the whole operation, if it is over several hosts. For a part over messages also the participating
  // ranks of the team in the algorithm's order, and this rank's position among them.
  Exchange* exchange = nullptr;
  std::span<const int> members = {};
  int position = 0;
  // Added to the step in tags, so that concurrent parts of one operation never match each other's messages.
  std::uint64_t first_step = 0;
  // Another part transfers the blocks between ranks of this host.
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
  OperationTraffic traffic = {};  // of its messages between hosts; other members' may differ
  // of a point-to-point message between hosts, once it has begun: its identity at both ends
  std::optional<WireId> message = {};

  // The identity of the operation on other hosts.
  WireId wire_id() const noexcept { return message ? *message : WireId(sequence); }

  // The call that the user made.
  const Call& whole() const noexcept { return part == nullptr ? call : part->whole; }
  // The number of inputs that a result combines.
  int inputs() const noexcept { return part == nullptr ? team.size() : part->ranks; }
};

}  // namespace aiacc

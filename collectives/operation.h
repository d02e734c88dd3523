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
};

// What members must agree on. Its hash travels in headers and control lines; a difference is kMismatch on all of them.
struct Call {
  Collective kind = Collective::kBarrier;
  std::size_t count = 0;  // elements, as the ABI's function counts them
  Reduction reduction;    // reduction.type is the element type of every call
  int root = 0;           // of reduce and broadcast; peer of send and recv
  std::uint32_t tag = 0;  // of send and recv

  std::size_t element_bytes() const noexcept { return size_of(reduction.type); }
  std::size_t bytes() const noexcept { return count * element_bytes(); }
  std::uint64_t fingerprint() const noexcept;
  std::string describe() const;  // "allreduce of 1024 fp32, sum"
};

// Elements of a buffer.
struct Extent {
  std::size_t begin = 0;
  std::size_t count = 0;
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
  // Where each member's block is, if not one after another with call.count elements each: of allgather in op.recv, of
  // reduce-scatter in op.send.
  std::span<const Extent> blocks = {};
  // Added to the steps in tags, so that parts of one operation that are under way at once never match each other's.
  std::uint64_t first_step = 0;
};

struct Operation {
  Team& team;
  Call call;
  std::uint64_t sequence = 0;  // ticket in the group: equal on all members for the same call
  Stop& stop;
  Buffer send;  // empty where the call has none
  Buffer recv;  // may equal send
  const PartOf* part = nullptr;

  // What the caller called.
  const Call& whole() const noexcept { return part == nullptr ? call : part->whole; }
  // The inputs that a result is made of.
  int inputs() const noexcept { return part == nullptr ? team.size() : part->ranks; }
};

}  // namespace aiacc

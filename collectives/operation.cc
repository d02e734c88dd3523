// When two calls match, and how a message describes a call.
#include "collectives/operation.h"

#include <fmt/format.h>

#include <bit>

#include "base/hash.h"

namespace aiacc {
namespace {

bool reduces(Collective kind) noexcept {
  return kind == Collective::kAllreduce || kind == Collective::kReduce || kind == Collective::kReduceScatter ||
         kind == Collective::kGroupedAllreduce;
}

bool has_root(Collective kind) noexcept {
  return kind == Collective::kReduce || kind == Collective::kBroadcast || kind == Collective::kGather ||
         kind == Collective::kScatter;
}

// Collectives in which only the two ends of a block know its length.
bool agrees_pairwise(const Call& call) noexcept {
  return call.uneven &&
         (call.kind == Collective::kGather || call.kind == Collective::kScatter || call.kind == Collective::kAlltoall);
}

std::string_view verb(Collective kind) noexcept {
  switch (kind) {
    case Collective::kAllreduce: return "allreduce";
    case Collective::kReduce: return "reduce";
    case Collective::kBroadcast: return "broadcast";
    case Collective::kAllgather: return "allgather";
    case Collective::kReduceScatter: return "reduce-scatter";
    case Collective::kBarrier: return "barrier";
    case Collective::kSend: return "send";
    case Collective::kRecv: return "recv";
    case Collective::kAlltoall: return "alltoall";
    case Collective::kGather: return "gather";
    case Collective::kScatter: return "scatter";
    case Collective::kSendrecv: return "sendrecv";
    case Collective::kRecvAny: return "recv";
    case Collective::kGroupedAllreduce: return "grouped allreduce";
  }
  return "unknown call";
}

std::uint64_t layout_of(const Call& call) noexcept {
  Hash64 hash;
  for (const Extent& block : call.blocks) hash.add(block.count);
  for (const Tensor& tensor : call.tensors) hash.add(tensor.send.bytes);
  return hash.value();
}

}  // namespace

std::uint64_t Call::fingerprint() const noexcept {
  // A send and its recv are the two ends of one call: they have the same kind and no root, because each names the
  // other.
  const bool message = is_message(kind);
  const bool scales = reduction.prescale != 1.0 || reduction.postscale != 1.0;
  Hash64 hash;
  if (kind == Collective::kBarrier) return hash.add(static_cast<std::uint64_t>(kind)).value();
  hash.add(static_cast<std::uint64_t>(message ? Collective::kSend : kind) |
           static_cast<std::uint64_t>(reduction.type) << 8 | static_cast<std::uint64_t>(reduction.codec) << 16 |
           (reduces(kind) ? static_cast<std::uint64_t>(reduction.op) << 24 | std::uint64_t{scales} << 32 : 0));
  if (agrees_pairwise(*this)) {
    hash.add(~std::uint64_t{0});  // no count
  } else {
    hash.add(count);
    if (uneven || !tensors.empty()) hash.add(blocks.size() + tensors.size()).add(layout_of(*this));
  }
  if (reduces(kind)) {
    if (scales) {
      hash.add(std::bit_cast<std::uint64_t>(reduction.prescale)).add(std::bit_cast<std::uint64_t>(reduction.postscale));
    }
    if (reduction.user != nullptr) hash.add(reduction.user->identity());
  }
  if (has_root(kind)) hash.add(static_cast<std::uint64_t>(root));
  if (message) hash.add(tag);
  return hash.value();
}

CallSummary Call::summary() const noexcept {
  CallSummary summary;
  summary.kind = kind;
  summary.uneven = uneven;
  summary.type = reduction.type;
  summary.op = reduction.op;
  summary.count = count;
  summary.recv_count = recv_count;
  summary.prescale = reduction.prescale;
  summary.postscale = reduction.postscale;
  summary.root = root;
  summary.from = from;
  summary.tag = tag;
  summary.recv_tag = recv_tag;
  if (const UserOp* user = reduction.user; user != nullptr) {
    summary.record_bytes = static_cast<std::uint32_t>(user->record_bytes);
    user->name.copy(summary.op_name, sizeof summary.op_name - 1);
  }
  if (uneven || !tensors.empty()) {
    summary.parts = static_cast<std::uint32_t>(blocks.size() + tensors.size());
    summary.layout = static_cast<std::uint32_t>(layout_of(*this));
  }
  return summary;
}

std::string CallSummary::describe() const {
  if (kind == Collective::kBarrier) return "barrier";
  std::string text(verb(kind));
  if (kind == Collective::kGroupedAllreduce) text += fmt::format(" of {} tensors", parts);
  if (uneven) text += 'v';
  text += fmt::format(" of {} {}", count, name_of(type));
  if (record_bytes > 0) text += fmt::format("s of {} bytes", record_bytes);
  if (uneven && parts > 0) text += fmt::format(" in {} blocks (lengths #{:08x})", parts, layout);
  if (kind == Collective::kGroupedAllreduce) text += fmt::format(" (lengths #{:08x})", layout);
  if (reduces(kind)) {
    text += record_bytes > 0 ? fmt::format(", operator '{}'", op_name) : fmt::format(", {}", name_of(op));
    if (prescale != 1.0) text += fmt::format(", prescale {}", prescale);
    if (postscale != 1.0) text += fmt::format(", postscale {}", postscale);
  }
  switch (kind) {
    case Collective::kReduce:
    case Collective::kGather: return text + fmt::format(", to root {}", root);
    case Collective::kBroadcast:
    case Collective::kScatter: return text + fmt::format(", from root {}", root);
    case Collective::kSend: return text + fmt::format(" to rank {}, tag {}", root, tag);
    case Collective::kRecv: return text + fmt::format(" from rank {}, tag {}", root, tag);
    case Collective::kRecvAny: return text + fmt::format(" from any rank, tag {}", tag);
    case Collective::kSendrecv:
      return text +
             fmt::format(" to rank {}, tag {}, and {} from rank {}, tag {}", root, tag, recv_count, from, recv_tag);
    default: return text;
  }
}

}  // namespace aiacc

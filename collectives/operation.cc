// What makes two calls the same call, and how a message names one.
#include "collectives/operation.h"

#include <fmt/format.h>

#include <bit>

#include "base/hash.h"

namespace aiacc {
namespace {

bool reduces(Collective kind) noexcept {
  return kind == Collective::kAllreduce || kind == Collective::kReduce || kind == Collective::kReduceScatter;
}

bool has_root(Collective kind) noexcept { return kind == Collective::kReduce || kind == Collective::kBroadcast; }

bool point_to_point(Collective kind) noexcept { return kind == Collective::kSend || kind == Collective::kRecv; }

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
  }
  return "unknown call";
}

}  // namespace

std::uint64_t Call::fingerprint() const noexcept {
  // A send and its recv are one call seen from two ends: the same kind, and no root, since each names the other.
  Hash64 hash;
  hash.add(static_cast<std::uint64_t>(point_to_point(kind) ? Collective::kSend : kind));
  if (kind == Collective::kBarrier) return hash.value();
  hash.add(count).add(static_cast<std::uint64_t>(reduction.type)).add(static_cast<std::uint64_t>(reduction.codec));
  if (reduces(kind)) {
    hash.add(static_cast<std::uint64_t>(reduction.op));
    hash.add(std::bit_cast<std::uint64_t>(reduction.prescale)).add(std::bit_cast<std::uint64_t>(reduction.postscale));
  }
  if (has_root(kind)) hash.add(static_cast<std::uint64_t>(root));
  if (point_to_point(kind)) hash.add(tag);
  return hash.value();
}

std::string Call::describe() const {
  if (kind == Collective::kBarrier) return "barrier";
  std::string text = fmt::format("{} of {} {}", verb(kind), count, name_of(reduction.type));
  if (reduces(kind)) {
    text += fmt::format(", {}", name_of(reduction.op));
    if (reduction.prescale != 1.0) text += fmt::format(", prescale {}", reduction.prescale);
    if (reduction.postscale != 1.0) text += fmt::format(", postscale {}", reduction.postscale);
  }
  if (kind == Collective::kReduce) text += fmt::format(", to root {}", root);
  if (kind == Collective::kBroadcast) text += fmt::format(", from root {}", root);
  if (kind == Collective::kSend) text += fmt::format(" to rank {}, tag {}", root, tag);
  if (kind == Collective::kRecv) text += fmt::format(" from rank {}, tag {}", root, tag);
  return text;
}

}  // namespace aiacc

#include "bindings/c/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>

#include "base/error.h"
#include "bindings/c/sized.h"

namespace aiacc::abi {
namespace {

double checked_scale(const char* name, double scale) {
  if (std::isfinite(scale)) return scale == 0.0 ? 1.0 : scale;
  refuse(fmt::format("{} in aiacc_attr_t is {}: a scale is a finite number, 0 means 1", name, scale));
}

}  // namespace

void refuse(const std::string& sentence) { throw Error(Code::kInvalidArgument, sentence); }

void check_place(const void* place, const char* argument) {
  if (place == nullptr)
    throw Error(Code::kInvalidArgument, fmt::format("{} is NULL: pass where the result shall go", argument));
}

void refuse_dtype(int dtype) {
  if (dtype == AIACC_RECORD) {
    refuse(
        fmt::format("dtype {} is AIACC_RECORD, which only reductions by an operator of aiacc_op_create know", dtype));
  }
  refuse(fmt::format("dtype {} is no aiacc_dtype_t: values are 0 (AIACC_INT8) to {} (AIACC_BOOL)", dtype, kDTypes - 1));
}

void refuse_op(int op, DType type) {
  if (op < 0 || op >= kReduceOps) {
    refuse(fmt::format("op {} is no aiacc_op_t: values are 0 (AIACC_SUM) to {} (AIACC_BXOR)", op, kReduceOps - 1));
  }
  refuse(fmt::format("{} of {}: bitwise operations take integers and bool", name_of(static_cast<ReduceOp>(op)),
                     name_of(type)));
}

std::size_t checked_product(std::size_t count, int ranks, const Reduction& elements) {
  std::size_t bytes = 0;
  // No buffer exceeds half the address space; a larger size would overflow pointer differences.
  constexpr std::size_t kMost = std::numeric_limits<std::ptrdiff_t>::max();
  if (__builtin_mul_overflow(count, elements.element_bytes(), &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<std::size_t>(ranks), &bytes) || bytes > kMost) {
    refuse(ranks == 1
               ? fmt::format("count {} of {} is more than memory can hold: was it given in bytes, or negative?", count,
                             name_of(elements.type))
               : fmt::format("count {} of {} for {} ranks is more than memory can hold: was it given in bytes, or "
                             "negative?",
                             count, name_of(elements.type), ranks));
  }
  return bytes;
}

Layout checked_layout(const char* counts_name, const std::size_t* counts, const char* displacements_name,
                      const std::size_t* displacements, int ranks, const Reduction& elements) {
  if (counts == nullptr) refuse(fmt::format("{} is NULL: give the elements of each of {} ranks", counts_name, ranks));
  Layout layout;
  layout.blocks.reserve(static_cast<std::size_t>(ranks));
  std::size_t end = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Extent block{displacements == nullptr ? layout.count : displacements[rank], counts[rank]};
    std::size_t block_end = 0;
    constexpr std::size_t kMost = std::numeric_limits<std::ptrdiff_t>::max();
    if (__builtin_add_overflow(block.begin, block.count, &block_end) || block_end > kMost / elements.element_bytes() ||
        __builtin_add_overflow(layout.count, block.count, &layout.count)) {
      refuse(fmt::format(
          "{}[{}] is {} and its block begins at element {}{}: that is more than memory can hold; was it given "
          "in bytes, or negative?",
          counts_name, rank, block.count, block.begin,
          displacements == nullptr ? "" : fmt::format(" ({})", displacements_name)));
    }
    if (block.count > 0) end = std::max(end, block_end);
    layout.blocks.push_back(block);
  }
  layout.bytes = end * elements.element_bytes();
  return layout;
}

void check_blocks_apart(const char* displacements_name, const Layout& layout) {
  std::vector<std::size_t> order;
  for (std::size_t rank = 0; rank < layout.blocks.size(); ++rank) {
    if (layout.blocks[rank].count > 0) order.push_back(rank);
  }
  const auto begins_first = [&](std::size_t a, std::size_t b) {
    return layout.blocks[a].begin < layout.blocks[b].begin;
  };
  if (!std::is_sorted(order.begin(), order.end(), begins_first)) std::sort(order.begin(), order.end(), begins_first);
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Extent& before = layout.blocks[order[i - 1]];
    const Extent& block = layout.blocks[order[i]];
    if (before.end() <= block.begin) continue;
    refuse(fmt::format("the blocks of ranks {} and {} overlap in recv: elements {} to {} and {} to {}; see {}",
                       order[i - 1], order[i], before.begin, before.end(), block.begin, block.end(),
                       displacements_name));
  }
}

void check_own_count(const char* argument, std::size_t count, const char* counts_name, const Layout& layout, int rank) {
  const std::size_t own = layout.blocks[static_cast<std::size_t>(rank)].count;
  if (count == own) return;
  refuse(fmt::format("{} is {}, but {}[{}] says that this rank, {}, has {} elements", argument, count, counts_name,
                     rank, rank, own));
}

void refuse_buffer(const char* argument, std::size_t bytes) {
  refuse(fmt::format("{} is NULL, but the call moves {} bytes", argument, bytes));
}

void refuse_rank(const char* argument, int rank, int size) {
  refuse(fmt::format("{} is {}, but the group's ranks are 0 to {}", argument, rank, size - 1));
}

void check_apart(const void* send, std::size_t send_bytes, const void* recv, std::size_t recv_bytes,
                 const char* in_place) {
  const auto send_begin = reinterpret_cast<std::uintptr_t>(send);
  const auto recv_begin = reinterpret_cast<std::uintptr_t>(recv);
  if (send_begin >= recv_begin + recv_bytes || recv_begin >= send_begin + send_bytes) return;
  if (send_bytes == 0 || recv_bytes == 0) return;
  refuse(
      fmt::format("send ({} bytes) and recv ({} bytes) overlap: for an operation in place {}; otherwise they lie apart",
                  send_bytes, recv_bytes, in_place));
}

Duration checked_timeout(std::int64_t timeout_ms, const char* where) {
  if (timeout_ms < -1) {
    refuse(
        fmt::format("timeout_ms in {} is {}: give milliseconds, 0 for the default, or -1 for none", where, timeout_ms));
  }
  constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max() / 1'000'000;
  return timeout_ms < 0 || timeout_ms > kLongest ? Duration::max() : Duration(timeout_ms * 1'000'000);
}

std::string checked_reason(const char* reason) {
  constexpr std::size_t kLongestReason = 500;
  return reason == nullptr || *reason == '\0' ? "no reason was given"
                                              : std::string(reason, strnlen(reason, kLongestReason));
}

std::optional<TrafficClass> checked_traffic_class(std::int32_t traffic_class, const char* where) {
  switch (traffic_class) {
    case AIACC_TRAFFIC_DEFAULT: return std::nullopt;
    case AIACC_TRAFFIC_CONTROL: return TrafficClass::kControl;
    case AIACC_TRAFFIC_LATENCY: return TrafficClass::kLatency;
    case AIACC_TRAFFIC_BULK: return TrafficClass::kBulk;
    case AIACC_TRAFFIC_BACKGROUND: return TrafficClass::kBackground;
    default: break;
  }
  refuse(fmt::format("traffic_class in {} is {}: values are 0 (AIACC_TRAFFIC_DEFAULT) to {} (AIACC_TRAFFIC_BACKGROUND)",
                     where, traffic_class, AIACC_TRAFFIC_BACKGROUND));
}

bool read_attr(const aiacc_attr_t* attr, Call& call, CallOptions& options) {
  if (attr == nullptr) return false;
  constexpr std::size_t kFirstSize = offsetof(aiacc_attr_t, callback);
  const aiacc_attr_t given = read_sized(*attr, kFirstSize, "aiacc_attr_t");
  call.reduction.prescale = checked_scale("prescale", given.prescale);
  call.reduction.postscale = checked_scale("postscale", given.postscale);
  if (given.memory_kind != AIACC_MEMORY_HOST) {
    throw Error(Code::kUnsupported,
                fmt::format("memory_kind in aiacc_attr_t is {}: this build knows AIACC_MEMORY_HOST (0) only",
                            given.memory_kind));
  }
  bool other = given.priority != 0 || given.traffic_class != 0 || given.callback != nullptr;
  options.priority = given.priority;
  options.traffic_class = checked_traffic_class(given.traffic_class, "aiacc_attr_t");
  options.callback = reinterpret_cast<void (*)()>(given.callback);
  options.callback_arg = given.callback_arg;
  if (given.name != nullptr && *given.name != '\0') {
    constexpr std::size_t kLongestName = 200;
    options.name.assign(given.name, strnlen(given.name, kLongestName));
    other = true;
  }
  const Duration timeout = checked_timeout(given.timeout_ms, "aiacc_attr_t");
  if (timeout != Duration::zero()) {
    options.timeout = timeout;
    other = true;
  }
  return other;
}

}  // namespace aiacc::abi

#include "tools/perf/data.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tools/perf/types.h"
#include "tools/perf/user_op.h"

namespace aiacc::tools {

namespace {

using Pattern = std::vector<std::byte>;  // one period

// The value that rank `rank` sends at element `i`.
std::int64_t value_of(aiacc_op_t op, int ranks, int rank, std::size_t i) {
  const auto place = static_cast<std::int64_t>(i);
  if (op == kUserOp) {
    const auto spread = static_cast<std::uint32_t>(place * 7 + rank * 3);
    return static_cast<std::int64_t>(map_of(2 * (spread % 5) + 1, spread % 11));
  }
  switch (op) {
    case AIACC_PROD: {
      const std::int64_t spread = std::max(1, (ranks + 5) / 6);  // at most six ranks have a two at one place
      return (place + rank) % spread == 0 ? 2 : 1;
    }
    case AIACC_AVG: {
      const int pair = rank % 2 == 0 ? 1 : -1;  // the pair's terms cancel, so the mean is a whole number
      return 1 + place % 2 + (rank == ranks - 1 && ranks % 2 == 1 ? 0 : pair);
    }
    default: {
      const std::int64_t range = std::clamp(127 / ranks, 2, 11);
      return (place * 7 + rank * 3) % range;
    }
  }
}

std::int64_t combine(aiacc_op_t op, std::int64_t a, std::int64_t b) {
  if (op == kUserOp) {
    return static_cast<std::int64_t>(composed(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  }
  switch (op) {
    case AIACC_PROD: return a * b;
    case AIACC_MIN: return std::min(a, b);
    case AIACC_MAX: return std::max(a, b);
    case AIACC_BAND: return a & b;
    case AIACC_BOR: return a | b;
    case AIACC_BXOR: return a ^ b;
    default: return a + b;
  }
}

// For bool, SUM and MAX are OR; PROD, MIN and AVG (the mean, truncated) are AND.
aiacc_op_t op_of_bools(aiacc_op_t op) {
  switch (op) {
    case AIACC_SUM:
    case AIACC_MAX: return AIACC_BOR;
    case AIACC_PROD:
    case AIACC_MIN:
    case AIACC_AVG: return AIACC_BAND;
    default: return op;
  }
}

// A small whole number as IEEE half precision; exact up to 2048.
std::uint16_t half_of(std::int64_t value) {
  if (value == 0) return 0;
  const int exponent = std::bit_width(static_cast<std::uint64_t>(value)) - 1;
  const auto mantissa = static_cast<std::uint64_t>(value) << 10 >> exponent;
  return static_cast<std::uint16_t>((static_cast<std::uint64_t>(exponent + 15) << 10) | (mantissa & 0x3FF));
}

void append(Pattern& pattern, aiacc_dtype_t type, std::int64_t value) {
  std::uint64_t word = static_cast<std::uint64_t>(value);
  if (type == AIACC_FLOAT16) word = half_of(value);
  if (type == AIACC_BFLOAT16) word = std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16;
  if (type == AIACC_FLOAT32) word = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (type == AIACC_FLOAT64) word = std::bit_cast<std::uint64_t>(static_cast<double>(value));
  const std::size_t at = pattern.size();
  pattern.resize(at + size_of(type));
  std::memcpy(pattern.data() + at, &word, size_of(type));  // all supported machines are little-endian
}

std::int64_t sent(const CallShape& shape, int rank, std::size_t i) {
  const bool any = shape.type == AIACC_BOOL || (shape.op == kUserOp && shape.type != AIACC_RECORD);
  const aiacc_op_t op = any ? AIACC_SUM : shape.op;
  const std::int64_t value = value_of(op, shape.size, rank, i);
  return shape.type == AIACC_BOOL ? value % 2 : value;
}

Pattern sent_by(const CallShape& shape, int rank) {
  Pattern pattern;
  for (std::size_t i = 0; i < kPeriod; ++i) append(pattern, shape.type, sent(shape, rank, i));
  return pattern;
}

Pattern reduced(const CallShape& shape) {
  const aiacc_op_t op = shape.type == AIACC_BOOL ? op_of_bools(shape.op) : shape.op;
  Pattern pattern;
  for (std::size_t i = 0; i < kPeriod; ++i) {
    std::int64_t value = sent(shape, 0, i);
    for (int rank = 1; rank < shape.size; ++rank) value = combine(op, value, sent(shape, rank, i));
    append(pattern, shape.type, op == AIACC_AVG ? value / shape.size : value);
  }
  return pattern;
}

// Cuts `count` elements, which begin at element `first` of the pattern, into pieces that are contiguous in the pattern.
// Calls visit(begin, bytes, piece of the pattern) for each.
template <class Visit>
void pieces(const Pattern& pattern, std::size_t element, std::size_t first, std::size_t count, Visit visit) {
  std::size_t begin = 0;
  std::size_t phase = first % kPeriod;
  while (begin < count) {
    const std::size_t length = std::min(kPeriod - phase, count - begin);
    visit(begin * element, length * element, pattern.data() + phase * element);
    begin += length;
    phase = 0;
  }
}

std::uint64_t differing(const void* data, const Pattern& pattern, std::size_t element, std::size_t first,
                        std::size_t count) {
  std::uint64_t wrong = 0;
  const auto* bytes = static_cast<const std::byte*>(data);
  pieces(pattern, element, first, count, [&](std::size_t at, std::size_t length, const std::byte* want) {
    if (std::memcmp(bytes + at, want, length) == 0) return;
    for (std::size_t i = 0; i < length; i += element)
      wrong += std::memcmp(bytes + at + i, want + i, element) != 0 ? 1 : 0;
  });
  return wrong;
}

}  // namespace

bool exact(aiacc_dtype_t type, aiacc_op_t op, int ranks) noexcept {
  if (type == AIACC_BOOL) return true;
  if (op == AIACC_AVG || op == AIACC_SUM)
    return ranks <= (type == AIACC_FLOAT64 || type == AIACC_FLOAT32 ? 1 << 20 : 42);
  return true;
}

void fill(const CallShape& shape, void* to, std::size_t count) {
  const std::size_t element = size_of(shape.type);
  auto* bytes = static_cast<std::byte*>(to);
  pieces(sent_by(shape, shape.rank), element, 0, count,
         [&](std::size_t at, std::size_t length, const std::byte* from) { std::memcpy(bytes + at, from, length); });
}

std::uint64_t count_wrong(const Collective& collective, const CallShape& shape) {
  using Result = Collective::Result;
  if (collective.recv_at_root_only && shape.rank != shape.root) return 0;
  const std::size_t element = size_of(shape.type);
  const std::size_t own = static_cast<std::size_t>(shape.rank) * shape.count;
  const auto block_of = [&](int rank) {
    return static_cast<const std::byte*>(shape.recv) + static_cast<std::size_t>(rank) * shape.count * element;
  };
  std::uint64_t wrong = 0;
  switch (collective.result) {
    case Result::kNothing: break;
    case Result::kReduced: return differing(shape.recv, reduced(shape), element, 0, shape.count);
    case Result::kReducedBlock: return differing(shape.recv, reduced(shape), element, own, shape.count);
    case Result::kOfRoot: return differing(shape.recv, sent_by(shape, shape.root), element, 0, shape.count);
    case Result::kBlockOfRoot: return differing(shape.recv, sent_by(shape, shape.root), element, own, shape.count);
    case Result::kOfNeighbour: {
      const int before = (shape.rank + shape.size - 1) % shape.size;
      return differing(shape.recv, sent_by(shape, before), element, 0, shape.count);
    }
    case Result::kAllBlocks:
    case Result::kExchanged:
      for (int rank = 0; rank < shape.size; ++rank) {
        const std::size_t first = collective.result == Result::kExchanged ? own : 0;
        wrong += differing(block_of(rank), sent_by(shape, rank), element, first, shape.count);
      }
  }
  return wrong;
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes) noexcept {
  const auto* from = static_cast<const std::byte*>(data);
  std::uint64_t hash = 0x9E3779B97F4A7C15ULL ^ bytes;
  const auto mix = [&](std::uint64_t word) { hash = std::rotl((hash ^ word) * 0xFF51AFD7ED558CCDULL, 31); };
  std::size_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + at, 8);
    mix(word);
  }
  std::uint64_t rest = 0;
  if (bytes > at) std::memcpy(&rest, from + at, bytes - at);
  mix(rest);
  return hash ^ hash >> 29;
}

}  // namespace aiacc::tools

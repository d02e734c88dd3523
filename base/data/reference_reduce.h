// The slow, exact reduction that every Compute is compared with: one element at a time, a direct implementation of
// dtype.h and reduction.h that shares no code with the kernels. For tests.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/data/compute.h"

namespace aiacc::reference {

inline float half_to_float(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 0x3ff;
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) {
    const std::uint32_t quiet = fraction != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>((half & 0x8000u) << 16 | 0x7f800000u | static_cast<std::uint32_t>(fraction) << 13 |
                                quiet);
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

// Rounds |value| to a multiple of 2^quantum, ties to even. Exact in fp64.
inline double round_to(double value, int quantum) {
  return std::ldexp(std::nearbyint(std::ldexp(value, -quantum)), quantum);
}

inline std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00 | (bits >> 13 & 0x3ff));
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), -14);
  const double rounded = round_to(magnitude, exponent - 10);
  if (rounded > 65504.0) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (rounded < std::ldexp(1.0, -14)) {
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::ldexp(rounded, 24)));
  }
  const int e = std::ilogb(rounded);
  const auto fraction = static_cast<std::uint16_t>(std::ldexp(rounded, 10 - e) - 1024);
  return static_cast<std::uint16_t>(sign | (e + 15) << 10 | fraction);
}

inline float bfloat_to_float(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

inline std::uint16_t float_to_bfloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto cut = static_cast<std::uint16_t>(bits >> 16);
  if (std::isnan(value)) return cut | 0x40;
  const std::uint32_t rest = bits & 0xffff;
  const bool up = rest > 0x8000 || (rest == 0x8000 && (cut & 1) != 0);
  return static_cast<std::uint16_t>(cut + (up ? 1 : 0));
}

template <class A>
A scale(A value, double by) {
  if constexpr (std::is_floating_point_v<A>) {
    return value * static_cast<A>(by);
  } else {
    if (by == 1.0) return value;
    const double scaled = std::trunc(static_cast<double>(value) * by);
    if (std::isnan(scaled)) return 0;
    if (scaled >= std::ldexp(1.0, std::numeric_limits<A>::digits)) return std::numeric_limits<A>::max();
    if (scaled <= static_cast<double>(std::numeric_limits<A>::min())) return std::numeric_limits<A>::min();
    return static_cast<A>(scaled);
  }
}

template <class A>
bool below(A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (a == 0 && b == 0) return std::signbit(a) && !std::signbit(b);
  }
  return a < b;
}

template <class A>
A combine(A a, A b, ReduceOp op) {
  if constexpr (std::is_floating_point_v<A>) {
    if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
      if (std::isnan(a)) return a;
      if (std::isnan(b)) return b;
    }
    switch (op) {
      case ReduceOp::kProd: return a * b;
      case ReduceOp::kMin: return below(b, a) ? b : a;
      case ReduceOp::kMax: return below(a, b) ? b : a;
      default: return a + b;
    }
  } else {
    using U = std::uint64_t;
    switch (op) {
      case ReduceOp::kProd: return static_cast<A>(static_cast<U>(a) * static_cast<U>(b));
      case ReduceOp::kMin: return below(b, a) ? b : a;
      case ReduceOp::kMax: return below(a, b) ? b : a;
      case ReduceOp::kBitAnd: return static_cast<A>(a & b);
      case ReduceOp::kBitOr: return static_cast<A>(a | b);
      case ReduceOp::kBitXor: return static_cast<A>(a ^ b);
      default: return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    }
  }
}

inline bool combine_bool(bool a, bool b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr: return a || b;
    case ReduceOp::kBitXor: return a != b;
    default: return a && b;
  }
}

template <class A>
A divide(A value, int ranks) {
  if constexpr (std::is_floating_point_v<A>) {
    return value / static_cast<A>(ranks);
  } else if constexpr (std::is_signed_v<A>) {
    return static_cast<A>(static_cast<std::int64_t>(value) / ranks);
  } else {
    return static_cast<A>(static_cast<std::uint64_t>(value) / static_cast<std::uint64_t>(ranks));
  }
}

// Stored is the element in memory, A the accumulate type.
template <class Stored, class A, class Load, class Store>
void reduce_as(std::byte* to, std::span<const Buffer> operands, std::size_t count, const Reduction& reduction,
               Compute::Step step, Load load, Store store) {
  for (std::size_t i = 0; i < count; ++i) {
    A sum{};
    for (std::size_t k = 0; k < operands.size(); ++k) {
      Stored stored;
      std::memcpy(&stored, operands[k].data + i * sizeof(Stored), sizeof stored);
      A value = load(stored);
      if (step.first && reduction.prescale != 1.0) value = scale<A>(value, reduction.prescale);
      sum = k == 0 ? value : combine<A>(sum, value, reduction.op);
    }
    if (step.last && reduction.op == ReduceOp::kAvg) sum = divide<A>(sum, step.ranks);
    if (step.last && reduction.postscale != 1.0) sum = scale<A>(sum, reduction.postscale);
    const Stored result = store(sum);
    std::memcpy(to + i * sizeof(Stored), &result, sizeof result);
  }
}

template <class T>
void reduce_plain(std::byte* to, std::span<const Buffer> operands, std::size_t count, const Reduction& reduction,
                  Compute::Step step) {
  const auto same = [](T value) { return value; };
  reduce_as<T, T>(to, operands, count, reduction, step, same, same);
}

inline float load_float(const std::byte* from, DType type) {
  std::uint16_t half = 0;
  float whole = 0;
  if (type == DType::kFloat32) {
    std::memcpy(&whole, from, sizeof whole);
    return whole;
  }
  std::memcpy(&half, from, sizeof half);
  return type == DType::kFloat16 ? half_to_float(half) : bfloat_to_float(half);
}
inline void store_float(std::byte* to, DType type, float value) {
  if (type == DType::kFloat32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const std::uint16_t half = type == DType::kFloat16 ? float_to_half(value) : float_to_bfloat(value);
  std::memcpy(to, &half, sizeof half);
}

// Reductions that accumulate in fp32, with a type for each operand; the result has type `result`.
inline void reduce_floats(std::byte* to, std::span<const Buffer> operands, std::size_t count,
                          const Reduction& reduction, Compute::Step step, DType result) {
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const DType type = reduction.operand_type(k);
      float value = load_float(operands[k].data + i * size_of(type), type);
      if (step.first && reduction.prescale != 1.0) value = scale<float>(value, reduction.prescale);
      sum = k == 0 ? value : combine<float>(sum, value, reduction.op);
    }
    if (step.last && reduction.op == ReduceOp::kAvg) sum = divide<float>(sum, step.ranks);
    if (step.last && reduction.postscale != 1.0) sum = scale<float>(sum, reduction.postscale);
    store_float(to + i * size_of(result), result, sum);
  }
}

inline void reduce_bool(std::byte* to, std::span<const Buffer> operands, std::size_t count, ReduceOp op) {
  for (std::size_t i = 0; i < count; ++i) {
    bool sum = operands[0].data[i] != std::byte{0};
    for (std::size_t k = 1; k < operands.size(); ++k) sum = combine_bool(sum, operands[k].data[i] != std::byte{0}, op);
    to[i] = static_cast<std::byte>(sum);
  }
}

// Computes result number `index`.
inline void reduce(std::byte* to, std::span<const Buffer> from, std::size_t count, const Reduction& how,
                   Compute::Step step, std::size_t index = 0) {
  switch (how.type) {
    case DType::kInt8: return reduce_plain<std::int8_t>(to, from, count, how, step);
    case DType::kUInt8: return reduce_plain<std::uint8_t>(to, from, count, how, step);
    case DType::kInt16: return reduce_plain<std::int16_t>(to, from, count, how, step);
    case DType::kUInt16: return reduce_plain<std::uint16_t>(to, from, count, how, step);
    case DType::kInt32: return reduce_plain<std::int32_t>(to, from, count, how, step);
    case DType::kUInt32: return reduce_plain<std::uint32_t>(to, from, count, how, step);
    case DType::kInt64: return reduce_plain<std::int64_t>(to, from, count, how, step);
    case DType::kUInt64: return reduce_plain<std::uint64_t>(to, from, count, how, step);
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32: return reduce_floats(to, from, count, how, step, how.result_type(index));
    case DType::kFloat64: return reduce_plain<double>(to, from, count, how, step);
    case DType::kBool: return reduce_bool(to, from, count, how.op);
    case DType::kRecord: break;
  }
}

}  // namespace aiacc::reference

// Element types and reduction operators, and the meaning of each pair. Values equal those of aiacc.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace aiacc {

enum class DType : std::int32_t {
  kInt8 = 0,
  kUInt8 = 1,
  kInt16 = 2,
  kUInt16 = 3,
  kInt32 = 4,
  kUInt32 = 5,
  kInt64 = 6,
  kUInt64 = 7,
  kFloat16 = 8,
  kBFloat16 = 9,
  kFloat32 = 10,
  kFloat64 = 11,
  kBool = 12,    // one byte; SUM and MAX are OR; PROD, MIN and AVG (the mean, truncated) are AND; scales have no effect
  kRecord = 13,  // of a user-defined operator, which knows its size
};
inline constexpr int kDTypes = 13;  // without kRecord: those that kernels know

enum class ReduceOp : std::int32_t {
  kSum = 0,
  kAvg = 1,  // SUM, then divided by the number of ranks (integers: truncated towards zero)
  kProd = 2,
  kMin = 3,  // NaN propagates; −0 is below +0
  kMax = 4,
  kBitAnd = 5,  // integers and bool only
  kBitOr = 6,
  kBitXor = 7,
};
inline constexpr int kReduceOps = 8;

constexpr std::size_t size_of(DType type) noexcept {
  switch (type) {
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool: return 1;
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kFloat16:
    case DType::kBFloat16: return 2;
    case DType::kInt32:
    case DType::kUInt32:
    case DType::kFloat32: return 4;
    case DType::kInt64:
    case DType::kUInt64:
    case DType::kFloat64: return 8;
    case DType::kRecord: break;
  }
  return 0;
}

constexpr bool is_floating(DType type) noexcept { return type >= DType::kFloat16 && type <= DType::kFloat64; }
constexpr bool supports(ReduceOp op, DType type) noexcept { return op < ReduceOp::kBitAnd || !is_floating(type); }

std::string_view name_of(DType type) noexcept;   // "fp32", "int8" …
std::string_view name_of(ReduceOp op) noexcept;  // "sum" …

}  // namespace aiacc

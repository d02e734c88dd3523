// For tests of collectives: inputs whose sums and products are exact in every order and type, so that the expected
// result does not depend on the order; and the result of a slow reference.
#pragma once

#include <bit>
#include <cstring>
#include <vector>

#include "base/data/reference_reduce.h"
#include "collectives/operation.h"

namespace aiacc::exact {

using Bytes = std::vector<std::byte>;

inline Buffer buffer_of(Bytes& bytes) { return Buffer{bytes.empty() ? nullptr : bytes.data(), bytes.size()}; }

// Small whole numbers.
inline Bytes input_of(DType type, ReduceOp op, std::size_t count, int rank) {
  Bytes bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const int value = op == ReduceOp::kProd ? 1 + static_cast<int>((i + static_cast<std::size_t>(rank)) % 2)
                                            : static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 3) % 11);
    const float as_float = static_cast<float>(value);
    std::uint64_t word = static_cast<std::uint64_t>(value);
    if (type == DType::kFloat16) word = reference::float_to_half(as_float);
    if (type == DType::kBFloat16) word = reference::float_to_bfloat(as_float);
    if (type == DType::kFloat32) word = std::bit_cast<std::uint32_t>(as_float);
    if (type == DType::kFloat64) word = std::bit_cast<std::uint64_t>(static_cast<double>(value));
    if (type == DType::kBool) word = static_cast<std::uint64_t>(value % 2);
    std::memcpy(bytes.data() + i * size_of(type), &word, size_of(type));
  }
  return bytes;
}

inline Bytes reduced(std::vector<Bytes>& inputs, const Call& call, std::size_t count) {
  std::vector<Buffer> operands;
  for (Bytes& input : inputs) operands.push_back(buffer_of(input));
  Bytes result(count * call.element_bytes());
  const Compute::Step step{.first = true, .last = true, .ranks = static_cast<int>(inputs.size())};
  if (count > 0) reference::reduce(result.data(), operands, count, call.reduction, step);
  return result;
}

}  // namespace aiacc::exact

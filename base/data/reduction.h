// Reduction: the operation on elements. 16-bit floats are accumulated in fp32; scales are applied in the accumulate
// type; the codec says how elements are encoded between hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/data/dtype.h"
#include "base/hash.h"

namespace aiacc {

// An operator that the caller defined, on records of a fixed size. Associative; called on any thread.
struct UserOp {
  // A part of a record for each of 256 ranks of a host fits into a staging slot (collectives/intra/staging.h).
  static constexpr std::size_t kMostRecordBytes = 512;
  // inout[i] = inout[i] op in[i]; `inout` holds the lower ranks.
  using Function = void (*)(void* inout, const void* in, std::size_t records, void* arg);

  // result[i] = operands[0][i] op operands[1][i] op ..., in that order; `result` may be one of the operands.
  using OfAll = void (*)(void* result, const std::byte* const* operands, std::size_t operand_count, std::size_t records,
                         void* arg);

  Function function = nullptr;
  void* arg = nullptr;
  std::size_t record_bytes = 0;
  bool commutative = false;
  std::string name = {};
  OfAll of_all = nullptr;  // if it is there: for several operands in less time than `function` takes for each
  // identity(), if it was computed when the operator was made; 0: not. A hash of a name takes as long as a small call's checks.
  std::uint64_t known_identity = 0;

  // What members compare of it.
  std::uint64_t identity() const noexcept {
    return known_identity != 0 ? known_identity
                               : Hash64().add(record_bytes).add(std::uint64_t{commutative}).add(name).value();
  }
};

// The encoding of elements in messages (codec.h), for sums and averages of fp32 in long allreduces between hosts.
enum class Codec : std::uint8_t { kNone = 0, kFloat16 = 1, kBFloat16 = 2 };

// The element type of one operand or result of a step: the call's own type, unless another one is given.
class ElementType {
 public:
  constexpr ElementType() = default;
  constexpr ElementType(DType type) noexcept : code_(static_cast<std::uint8_t>(type) + 1) {}  // NOLINT(*-explicit-*)
  constexpr DType in(DType own) const noexcept { return code_ == 0 ? own : static_cast<DType>(code_ - 1); }
  constexpr bool named() const noexcept { return code_ != 0; }

 private:
  std::uint8_t code_ = 0;
};

// The element types of a step's operands, or of its results, in order. The first may differ from the others, for
// example where a ring adds its own elements to operands that were received in a wire type; all from the second on are
// equal.
struct ElementTypes {
  ElementType first;
  ElementType rest;

  constexpr ElementTypes() = default;
  constexpr ElementTypes(ElementType all) noexcept : first(all), rest(all) {}  // NOLINT(*-explicit-*)
  constexpr ElementTypes(DType all) noexcept : first(all), rest(all) {}        // NOLINT(*-explicit-*)
  constexpr ElementTypes(ElementType one, ElementType others) noexcept : first(one), rest(others) {}
  constexpr ElementType of(std::size_t index) const noexcept { return index == 0 ? first : rest; }
  constexpr bool named() const noexcept { return first.named() || rest.named(); }
};

struct Reduction {
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Codec codec = Codec::kNone;
  double prescale = 1.0;   // each input is multiplied by it before the first operation
  double postscale = 1.0;  // the result is multiplied by it after the last (AVG: times 1/n, as one division)
  // Set: in place of `op`, on records (`type` is kRecord), without scales. Outlives every use of the reduction.
  const UserOp* user = nullptr;
  // The types in a step, if they are not `type`; requires mixes(). Reductions that accumulate in fp32 accept and
  // produce fp16, bf16 and fp32. A phase that leaves partial sums for another phase has results in the accumulate type,
  // so that sums are rounded once.
  ElementTypes operands = {};
  ElementTypes results = {};
  // Each phase of a call over several hosts rounds its results to `type`: half the bytes between hosts, and one more rounding.
  bool rounds_phases = false;

  DType accumulate_type() const noexcept {
    return type == DType::kFloat16 || type == DType::kBFloat16 ? DType::kFloat32 : type;
  }
  DType operand_type(std::size_t index) const noexcept { return operands.of(index).in(type); }
  DType result_type(std::size_t index) const noexcept { return results.of(index).in(type); }
  // The element size of an operand, and of a result.
  std::size_t element_bytes(std::size_t index = 0) const noexcept {
    return user != nullptr ? user->record_bytes : size_of(operand_type(index));
  }
  std::size_t result_bytes(std::size_t index = 0) const noexcept {
    return user != nullptr ? user->record_bytes : size_of(result_type(index));
  }
  // Whether operands and results may have types other than `type`: the operator rounds, and accumulates in fp32.
  bool mixes() const noexcept {
    const bool rounds = op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kProd;
    return user == nullptr && accumulate_type() == DType::kFloat32 && rounds;
  }
  // Whether operands are partial sums of an earlier phase, or results are for a later one: not rounded to `type`.
  bool takes_partials() const noexcept { return wide(operands); }
  bool leaves_partials() const noexcept { return wide(results); }
  // Whether only adjacent operands may be combined, the lower one first (the operator is not commutative).
  bool ordered() const noexcept { return user != nullptr && !user->commutative; }
  // Whether rounding a partial sum to `type` loses digits of the accumulate type.
  bool narrows() const noexcept {
    return mixes() && accumulate_type() != type && !takes_partials() && !leaves_partials();
  }

 private:
  bool wide(const ElementTypes& types) const noexcept {
    return types.named() && accumulate_type() != type && types.of(0).in(type) == accumulate_type();
  }
};

}  // namespace aiacc

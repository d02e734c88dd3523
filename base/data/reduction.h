// Reduction: what is done to elements on their way. The accumulate type is wider than 16-bit floats (fp32), scales are
// applied in it, and the wire codec says how elements travel between hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/data/dtype.h"

namespace aiacc {

// An operator that the caller defined, on records of a fixed size. Associative; called on any thread.
struct UserOp {
  // A part of a record for each of 256 ranks of a host fits into a staging slot (collectives/host/staging.h).
  static constexpr std::size_t kMostRecordBytes = 512;
  // inout[i] = inout[i] op in[i]; `inout` holds the lower ranks.
  using Function = void (*)(void* inout, const void* in, std::size_t records, void* arg);

  Function function = nullptr;
  void* arg = nullptr;
  std::size_t record_bytes = 0;
  bool commutative = false;
  std::string name;
};

// How elements travel. Only kNone here; codecs of fixed and variable size (fp16, bf16, sparse) join as further values.
enum class Codec : std::uint8_t { kNone = 0 };

struct Reduction {
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Codec codec = Codec::kNone;
  double prescale = 1.0;   // each input is multiplied by it before the first operation
  double postscale = 1.0;  // the result is multiplied by it after the last (AVG: times 1/n, as one division)
  // Set: in place of `op`, on records (`type` is kRecord), without scales. Outlives every use of the reduction.
  const UserOp* user = nullptr;
  Partial partial = Partial::kNone;  // another only where narrows() was true

  // Of an operand, and of a result.
  std::size_t element_bytes() const noexcept {
    if (user != nullptr) return user->record_bytes;
    return size_of(partial == Partial::kOperands ? accumulate_type() : type);
  }
  std::size_t result_bytes() const noexcept {
    return partial == Partial::kNone ? element_bytes()
                                     : size_of(partial == Partial::kResult ? accumulate_type() : type);
  }
  // Whether only neighbours may be combined, the lower first.
  bool ordered() const noexcept { return user != nullptr && !user->commutative; }
  // Whether a partial sum that is kept in `type` loses digits that the accumulate type has.
  bool narrows() const noexcept {
    const bool exact = op == ReduceOp::kMin || op == ReduceOp::kMax;
    return user == nullptr && accumulate_type() != type && !exact && partial == Partial::kNone;
  }
  DType accumulate_type() const noexcept {
    return type == DType::kFloat16 || type == DType::kBFloat16 ? DType::kFloat32 : type;
  }
};

}  // namespace aiacc

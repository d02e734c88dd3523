// Reduction: what is done to elements on their way. The accumulate type is wider than 16-bit floats (fp32), scales are
// applied in it, and the wire codec says how elements travel between hosts.
#pragma once

#include <cstdint>

#include "base/data/dtype.h"

namespace aiacc {

// How elements travel. Only kNone here; codecs of fixed and variable size (fp16, bf16, sparse) join as further values.
enum class Codec : std::uint8_t { kNone = 0 };

struct Reduction {
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Codec codec = Codec::kNone;
  double prescale = 1.0;   // each input is multiplied by it before the first operation
  double postscale = 1.0;  // the result is multiplied by it after the last (AVG: times 1/n, as one division)

  DType accumulate_type() const noexcept {
    return type == DType::kFloat16 || type == DType::kBFloat16 ? DType::kFloat32 : type;
  }
};

}  // namespace aiacc

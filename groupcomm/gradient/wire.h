// The 16-bit wire of fp32 gradients on one host: what is encoded before an allreduce of fp16 or bf16 and decoded after it. The sum itself
// is in fp32 and rounded once, so the error does not grow with the number of ranks. Over several hosts the allreduce has a codec instead
// (base/data/codec.h).
//
// fp16 has a small range, so each tensor is multiplied by a power of two, the same on all ranks. It follows from the tensor's
// last result, which has equal bits on all ranks, and so costs no message: the greatest magnitude comes to 2^kTarget, which leaves
// room for growth by 2^(15 - kTarget) and 2^(kTarget + 14) below for small elements. A result that is not finite shows that
// something was too large, and one that is far smaller than the last that digits are lost, on all ranks alike. The tensor then
// travels again as it is (Launches::Part::out_of_range), and so does the first one of each tensor, and what follows zeros. bf16 has
// the range of fp32 and needs none of this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/data/cpu_compute.h"
#include "base/data/dtype.h"
#include "groupcomm/gradient/kind.h"

namespace aiacc::gradient {

// Which power of two each tensor is multiplied by. By agreed index.
class WireScales {
 public:
  static constexpr int kTarget = 5;
  static constexpr int kMostShrinking = 17;  // powers of two from one result to the next; more lose digits
  static constexpr int kLeastTarget =
      -9;  // for tensors whose results are small where they are large: ranks that cancel

  // None: the next launch takes the tensor as it is.
  std::optional<int> exponent(std::uint32_t index) const noexcept {
    return index < scales_.size() ? scales_[index].exponent : std::nullopt;
  }
  // The greatest magnitude (magnitude.h) of a result, divided by `postscale`.
  void learn(std::uint32_t index, std::uint32_t greatest, double postscale);
  // Whether the greatest half of a result is as large as was expected. If not, the next launch takes the tensor as it is.
  bool fits(std::uint32_t index, std::uint32_t greatest_half);

 private:
  struct Scale {
    std::optional<int> exponent;
    int target = kTarget;
  };
  Scale& of(std::uint32_t index);

  std::vector<Scale> scales_;
};

// Between fp32 and a 16-bit type, multiplied by `factor` in fp32.
class WireCodec {
 public:
  void encode(DType wire, std::byte* to, const std::byte* from, std::size_t count, double factor) const;
  // Returns the greatest magnitude of what it writes.
  std::uint32_t decode(DType wire, std::byte* to, const std::byte* from, std::size_t count, double factor) const;

 private:
  CpuCompute compute_;  // slots are memory of the host
};

}  // namespace aiacc::gradient

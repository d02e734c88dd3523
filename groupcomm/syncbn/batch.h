// groupcomm/syncbn: batch normalisation over the batches of all ranks of a group. Not here: running it over a framework's
// graph (bindings/python).
//
// Batch: what one rank's elements are, and where the elements of a channel lie.
#pragma once

#include <cstddef>

#include "base/data/dtype.h"

namespace aiacc::syncbn {

enum class Layout : unsigned char {
  kChannelsFirst,  // NCHW: a sample's positions of one channel follow each other
  kChannelsLast,   // NHWC: the channels of one position follow each other
};

struct Batch {
  std::size_t samples = 0;
  std::size_t channels = 0;
  std::size_t positions = 1;  // of a sample and channel: height x width
  DType type = DType::kFloat32;
  Layout layout = Layout::kChannelsFirst;

  std::size_t count() const noexcept { return samples * positions; }  // elements of each channel
  std::size_t elements() const noexcept { return count() * channels; }
};

// Statistics, weights and their gradients are fp64 for fp64 elements, and fp32 for all others.
inline DType statistics_type(DType type) noexcept {
  return type == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

}  // namespace aiacc::syncbn

// A batch normalisation layer as one writes it with a bare allreduce, over the same passes over the batch as aiacc's layer:
//
//   forward:  sums of x and x^2 of each channel; an allreduce of these 2C floats and the count; mean, variance and scale; running
//             statistics; y
//   backward: sums of dy and dy (x - mean); gradients of weight and bias; an allreduce of 2C floats; dx
//
// The floats are written into and read from memory of aiacc_mem_alloc(), which is the buffer of the allreduce, and one loop over the
// channels computes what follows from them. As with all sums of squares, nothing is left of the variance of a channel whose mean is a
// thousand deviations.
#pragma once

#include <aiacc/aiacc.h>

#include <cstddef>
#include <vector>

#include "groupcomm/syncbn/batch.h"

namespace aiacc::bench {

// As in aiacc_syncbn_layer_t; arrays of one number for each channel.
struct Parameters {
  const float* weight;
  const float* bias;
  float* running_mean;
  float* running_variance;
  double epsilon;
  double momentum;
};

class Parts {
 public:
  explicit Parts(const syncbn::Batch& batch);
  ~Parts();
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  aiacc_status_t forward(const Parameters& layer, const void* x, void* y);
  aiacc_status_t backward(const float* weight, const void* x, const void* dy, void* dx, float* dweight, float* dbias);

 private:
  const syncbn::Batch batch_;
  std::vector<double> first_, second_, mean_, scale_, factor_, constant_;
  double count_ = 0;
  float* floats_ = nullptr;
};

}  // namespace aiacc::bench

// SyncBatchNorm: batch normalisation in training, over the batches of all ranks of a group: y = (x - mean) / deviation *
// weight + bias, with mean and variance of a channel over all ranks' elements of it.
//
// Forward exchanges the channels' moments in one allreduce, whose operator merges them in the order of ranks; backward
// exchanges two sums of each channel in one. Nothing is negotiated: the order of calls is that of the model's graph, equal
// on all ranks. Messages lie in memory that the ranks of a host share, so that on a host they are not copied.
//
// With S the elements of all ranks, n their count, r = 1 / deviation and g = weight:
//   dx = g r (dy - sum_S(dy) / n - (x - mean) r^2 sum_S(dy (x - mean)) / n)
//   dweight = r sum(dy (x - mean)), dbias = sum(dy), over this rank's elements.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "groupcomm/syncbn/batch.h"
#include "groupcomm/syncbn/moments.h"
#include "runtime/group/group.h"
#include "runtime/real_context.h"

namespace aiacc::syncbn {

// How running statistics follow those of a batch.
enum class Convention : std::uint8_t {
  kTorch,  // (1 - momentum) old + momentum new, of the unbiased variance M2 / (n - 1)
  kMxnet,  // momentum old + (1 - momentum) new, of the variance M2 / n
};

struct Layer {
  const void* weight = nullptr;  // null: 1; of statistics_type(), as all that follow
  const void* bias = nullptr;    // null: 0
  void* running_mean = nullptr;  // null: not kept
  void* running_variance = nullptr;
  double epsilon = 1e-5;
  double momentum = 0.1;
  Convention convention = Convention::kTorch;
};

// What backward needs of forward: `channels` means, `channels` reciprocals of sqrt(variance + epsilon), and the count.
struct Saved {
  double* mean = nullptr;
  double* scale = nullptr;
  double* count = nullptr;

  Saved(double* array, std::size_t channels) noexcept
      : mean(array), scale(array + channels), count(array + 2 * channels) {}
  static std::size_t size(std::size_t channels) noexcept { return 2 * channels + 1; }
};

class SyncBatchNorm {
 public:
  // Uses `group` alone: no other calls are made on it. Both outlive this object.
  SyncBatchNorm(RealContext& context, Group& group, std::string name);
  ~SyncBatchNorm();
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;

  // Arguments are checked by the caller. `saved` has Saved::size() numbers. y may be x.
  void forward(const Batch& batch, const Layer& layer, const void* x, void* y, double* saved);
  // dx may be dy or x; dx, dweight and dbias may be null.
  void backward(const Batch& batch, const void* weight, const double* saved, const void* x, const void* dy, void* dx,
                void* dweight, void* dbias);

 private:
  void exchange_moments(std::size_t channels);
  void exchange_sums(const Batch& batch);
  void exchange(const char* pass, std::size_t channels, const Call& call, std::size_t bytes);
  std::byte* message(std::size_t bytes);

  RealContext& context_;
  Group& group_;
  std::string name_;
  std::mutex mutex_;  // guards all below: calls of several threads take turns
  SharedMemory message_;
  Moments moments_;
  std::vector<double> first_, second_, third_, fourth_;  // numbers of each channel
};

}  // namespace aiacc::syncbn

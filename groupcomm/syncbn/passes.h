// Passes: what one rank does in a forward and a backward pass of batch normalisation over several ranks, before and after the one
// exchange that each of them has. Who runs the exchange decides how it is waited for (sync_batch_norm.h blocks).
//
// Forward exchanges the channels' moments, which an operator merges in the order of ranks; backward two sums of each channel.
//
// With S the elements of all ranks, n their count, r = 1 / deviation and g = weight:
//   dx = g r (dy - sum_S(dy) / n - (x - mean) r^2 sum_S(dy (x - mean)) / n)
//   dweight = r sum(dy (x - mean)), dbias = sum(dy), over this rank's elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/data/cpu_compute.h"
#include "base/data/reduction.h"
#include "base/error.h"
#include "collectives/intra/small_call.h"
#include "collectives/operation.h"
#include "groupcomm/syncbn/batch.h"
#include "groupcomm/syncbn/moments.h"

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

// One pass after the other: begin; of several ranks also write, call() with the message as its buffer, and read; end.
class Passes final : public intra::InPlace {
 public:
  // `name` is that of the layers, for messages.
  explicit Passes(std::string name);

  const std::string& name() const noexcept { return name_; }

  // Arguments are checked by the caller. `saved` has Saved::size() numbers. y may be x.
  void begin_forward(const Batch& batch, const void* x);
  void end_forward(const Batch& batch, const Layer& layer, const void* x, void* y, double* saved);
  // dx may be dy or x; dx, dweight and dbias may be null.
  void begin_backward(const Batch& batch, const double* saved, const void* x, const void* dy, void* dweight,
                      void* dbias);
  void end_backward(const Batch& batch, const void* weight, const double* saved, const void* x, const void* dy,
                    void* dx);

  // Of the pass that has begun.
  std::size_t message_bytes() const noexcept;
  // The allreduce, which refers to this object. It takes another pass over channels whose mean is far from 0.
  Call call() noexcept;
  // This rank's message.
  void write(std::byte* message) noexcept override;
  // The allreduce's result, which stays until the pass has ended; or the messages of all ranks, with the same bits.
  void read(const std::byte* message);
  void read(std::span<const std::byte* const> messages) noexcept override;
  // The allreduce's error, as the caller is told of it.
  Error explained(const Error& error) const;

 private:
  void read_sums(const std::byte* sums) noexcept;
  void give_gradients(DType type, void* sum, void* product_sum) noexcept;

  enum class Pass : std::uint8_t { kForward, kBackward };

  const std::string name_;
  Pass pass_ = Pass::kForward;
  Batch batch_;
  const void* x_ = nullptr;       // of a forward pass
  bool finished_ = false;         // these are moments, not sums
  bool exchanged_ = false;        // the numbers are those of all ranks
  DType type_ = DType::kFloat32;  // of the batch's statistics
  Moments moments_;
  CpuCompute cpu_;
  std::vector<std::byte> sums_;                    // of messages
  std::pair<std::size_t, DType> records_of_ = {};  // so many channels with such statistics
  Records records_{1, DType::kFloat32};
  UserOp merging_;
  kernels::GradientSums gradients_;
  std::vector<double> first_, second_, third_;  // numbers of each channel
};

}  // namespace aiacc::syncbn

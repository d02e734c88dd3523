// groupcomm/softmax: the softmax cross entropy of a classifier whose classes are split over the ranks of a group (the data and
// model parallel classifier of InsightFace and Partial FC). Every rank has the logits of the whole batch for its classes; the
// features were gathered before, and their gradients are reduce-scattered afterwards, by collectives of the caller.
//
// One round: an allreduce of a record (maximum m, sum z of exp(l - m), target t - m) for each row, merged as
//   m = max(m_a, m_b), z = z_a exp(m_a - m) + z_b exp(m_b - m),
// the online softmax of Milakov and Gimelshein (arXiv:1805.02867). Nothing overflows, because exponents are at most 0 (but for the
// rounding of m). The target's logit is known to the rank that has the row's class, and stands relative to m, and the sum stands
// as z - 1, so that a small loss and a small gradient keep their digits.
//
// Rounding. Logits, margins, exponentials and merges are computed in double. The records of fp32 logits are fp32: z - 1 and t - m
// are rounded when they are made and in each merge, so that over n ranks a loss is off by at most n 2^-24 of itself and a gradient
// by (n + 1) 2^-24, plus n 2^-47 |m| because m is rounded too. That is 10^-6 for 15 ranks, and less where signs of errors differ.
// The rounding of the logits themselves is the caller's (aiacc_softmax_loss(3)).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/data/buffer.h"
#include "base/data/dtype.h"
#include "collectives/operation.h"
#include "runtime/group/group.h"

namespace aiacc::softmax {

// What is done to the cosine of a row and its own class before it is scaled.
enum class Margin : std::uint8_t {
  kNone,  // logits are taken as they are
  kArc,   // cos(angle + margin); cos - margin sin(margin) where that angle would be beyond pi (Deng et al. 2019)
  kCos,   // cos - margin (Wang et al. 2018)
};

struct Shard {
  std::size_t rows = 0;               // of the whole batch
  std::size_t classes = 0;            // of this rank; may be 0
  std::int64_t first_class = 0;       // number of the first of them
  const std::int64_t* ids = nullptr;  // numbers of all of them, ascending, where they do not follow each other; or null
  DType type = DType::kFloat32;       // of the logits: fp32 or fp64
  Margin margin = Margin::kNone;
  double size = 0;    // of the margin
  double scale = 1;   // of the logits
  double factor = 1;  // of the gradient
};

// One rank's part in the loss of a batch: what it does before the exchange with the other ranks of its group, what they exchange,
// and what it does afterwards. Who runs the exchange decides how it is waited for.
class Loss {
 public:
  // The caller's memory is the loss's until finish(); the logits are read here, and again there.
  static std::unique_ptr<Loss> begin(const Shard& shard, void* logits, const std::int64_t* labels, double* losses);
  virtual ~Loss() = default;

  // Whether there is something to exchange, the same on all ranks.
  virtual bool exchanges(int ranks) const noexcept = 0;
  // The one round, an allreduce of the message in place. Both refer to this object.
  virtual Call call() const noexcept = 0;
  virtual Buffer message() noexcept = 0;
  // After it: writes the losses and the gradient.
  virtual void finish() noexcept = 0;
};

// Replaces `logits` (rows x classes) by `factor` times the gradient of the sum of the rows' losses, and writes the losses, equal
// on all ranks. `labels` are the rows' classes, equal on all ranks.
void loss(Group& group, const Shard& shard, void* logits, const std::int64_t* labels, double* losses,
          const CallOptions* options);

// The column of a class on this rank, or `classes`.
std::size_t column_of(const Shard& shard, std::int64_t label) noexcept;

// Picks the classes of a shard that a step of Partial FC uses: all that are labels, and others at random up to `wanted`, in
// ascending order. Classes are `classes` from `first_class` on. Equal arguments give equal picks on every machine. Returns how
// many; `ids` has room for `classes`.
std::size_t sample(std::int64_t first_class, std::size_t classes, const std::int64_t* labels, std::size_t rows,
                   std::size_t wanted, std::uint64_t seed, std::int64_t* ids);

}  // namespace aiacc::softmax

// Moments: count, mean and sum of squared deviations (M2) of each channel, of one rank's batch or of several batches.
//
// Of one batch they come from one pass over deviations d = x - K from a shift K: the mean is K + sum d / n, and M2 is
// sum d^2 - (sum d)^2 / n. With R = n (mean - K)^2 / M2, the squared distance of K in deviations, rounding puts M2
// off by m x 2^-53 (1 + 3R) of itself at most, and by about the square root of m in place of m, where m elements are added
// one after the other (Chan, Golub and LeVeque, "Algorithms for computing the sample variance: analysis and
// recommendations", The American Statistician 37, 1983): all n if the eight numbers of a vector are of eight channels, as
// with channels last or one position, and otherwise n/8, in eight partial sums. K is 0 at first. Where R is above kFar =
// 1024, a mean of more than 32 deviations, the channel is passed again with its first element as K, and if that is an
// outlier, once more with the mean. So M2 is within 6 x 10^-6 for 2^24 elements at the worst, and with eight partial sums
// within 10^-6. Of fp64 elements, whose squares may be too large, also what is not finite is passed again.
//
// Moments of several batches are merged by the pairwise formula of Chan, Golub and LeVeque ("Updating formulae and a
// pairwise algorithm for computing sample variances", Stanford STAN-CS-79-773, 1979).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/data/reduction.h"
#include "groupcomm/syncbn/batch.h"
#include "groupcomm/syncbn/kernels.h"

namespace aiacc::syncbn {

struct Moments {
  std::uint64_t count = 0;       // elements of each channel; kernels::kCountsDiffer: a message was none of moments
  std::vector<double> mean;      // 0 where count is 0
  std::vector<double> square;    // M2
  std::vector<double> sum = {};  // between sum_up() and finish()
  std::vector<std::uint8_t> taken = {};  // by finish(), for another pass: of each kernels::kTakenTogether channels
};

// In two steps, into `sums`, whose memory is used again. In between these are sums of elements and, in place of M2, of their squares, of
// which Records::write_sums() makes moments at once unless a mean is far from 0.
void sum_up(const Batch& batch, const void* x, Moments& sums);
// Whether finish() takes another pass that matters.
bool has_far(const Moments& sums) noexcept;
void finish(const Batch& batch, const void* x, Moments& sums);
void moments_of(const Batch& batch, const void* x, Moments& moments);

// Moments in a message: records of a count, the means of some channels and then their variances. All records of a message have as many
// channels; the last one is padded. Beside fp64 statistics both are fp64. Beside fp32 statistics a channel has 10 bytes: of
// a mean 40 bits, which are within 2^-40 of it where fp32 is normal, so that of 10^4 deviations 10^-8 of one is lost; and the variance as fp32. Of 128 channels
// these are one packet of Ethernet, as their floats are.
class Records {
 public:
  Records(std::size_t channels, DType statistics) noexcept;

  std::size_t count() const noexcept { return count_; }
  std::size_t record_bytes() const noexcept { return sizeof(std::uint64_t) + of_record_ * form_->channel_bytes; }
  std::size_t bytes() const noexcept { return count_ * record_bytes(); }

  void write(const Moments& moments, std::byte* message) const noexcept;
  // The same of sums, with the same bits as after finish(). None is far from 0.
  void write_sums(const Moments& sums, std::byte* message) const noexcept;
  void read(const std::byte* message, Moments& moments) const;
  // Reads what merging() makes of these messages, at most 64, with the same bits.
  void merge(std::span<const std::byte* const> messages, Moments& moments) const noexcept;

  // Merges records in the order of ranks, without a fused multiply-add: the bits are equal on every processor. Its name has
  // the number of channels, because ranks compare names. Each record is merged by its own counts.
  UserOp merging() const;

 private:
  // How many channels there are in the record that begins with `first`.
  std::size_t part_of_record(std::size_t first) const noexcept;

  std::size_t channels_;
  bool wide_;  // fp64
  const kernels::RecordForm* form_;
  std::size_t count_ = 0;
  std::size_t of_record_ = 0;
};

}  // namespace aiacc::syncbn

// runtime/metrics: numbers about a rank, for monitoring. Here: where components leave theirs. Not here: what components count
// (groupcomm/gradient).
//
// Metrics: the sums of what gradient engines have counted, those that are gone included. Nothing is counted twice: a source counts
// for itself, and is asked only when somebody wants to know.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace aiacc {

// Sizes, by powers of two from 1 KiB to 1 GiB.
struct SizeHistogram {
  static constexpr std::size_t kSmallest = 10, kBuckets = 21;
  void add(std::uint64_t bytes) noexcept {
    const auto power = static_cast<std::size_t>(std::bit_width(bytes == 0 ? 0 : bytes - 1));  // bytes <= 2^power
    if (power <= kSmallest + kBuckets - 1) ++counts[power < kSmallest ? 0 : power - kSmallest];
    ++count;
    sum += bytes;
  }
  std::array<std::uint64_t, kBuckets> counts{};  // of at most 2^(kSmallest + i) bytes, and more than the one before
  std::uint64_t count = 0, sum = 0;
};

struct MetricsSample {
  std::uint64_t steps = 0, rounds = 0, negotiation_messages = 0, launches = 0, tensors = 0, bytes = 0, wire_bytes = 0,
                packed_bytes = 0, breaks = 0, waits = 0, wait_ns = 0;
  SizeHistogram fused;

  MetricsSample& operator+=(const MetricsSample& other) noexcept;
};

// All on the lane's thread.
class Metrics {
 public:
  class Source {
   public:
    virtual MetricsSample sample() const noexcept = 0;

   protected:
    ~Source() = default;
  };

  void add(Source& source) { sources_.push_back(&source); }
  // What it has counted stays.
  void remove(Source& source) noexcept {
    const auto found = std::find(sources_.begin(), sources_.end(), &source);
    if (found == sources_.end()) return;
    sources_.erase(found);
    gone_ += source.sample();
  }
  std::size_t engines() const noexcept { return sources_.size(); }
  MetricsSample sample() const noexcept;

 private:
  std::vector<Source*> sources_;
  MetricsSample gone_;
};

// Of whom the numbers are.
struct MetricsOwner {
  int rank = 0;
  int size = 1;
  std::string host;
};

Json metrics_json(const MetricsOwner& owner, const Metrics& metrics);
// In Prometheus' text format, version 0.0.4.
std::string metrics_text(const MetricsOwner& owner, const Metrics& metrics);

}  // namespace aiacc

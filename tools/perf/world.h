// The ranks of the job, and the values that they exchange between measurements.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "include/aiacc/aiacc.h"

namespace aiacc::tools {

// A call of aiacc.h failed; what() is the library's sentence.
class CallError : public std::runtime_error {
 public:
  explicit CallError(aiacc_status_t status) : std::runtime_error(aiacc_last_error()), status_(status) {}
  aiacc_status_t status() const noexcept { return status_; }

 private:
  aiacc_status_t status_;
};

inline void require(aiacc_status_t status) {
  if (status != AIACC_OK) throw CallError(status);
}

class World {
 public:
  // Calls aiacc_init. finalize() leaves in order; a rank that exits without it ends the job with an error.
  World();
  void finalize() { require(aiacc_finalize()); }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int local_size() const noexcept { return local_size_; }
  bool one_host() const noexcept { return local_size_ == size_; }

  void barrier() const { require(aiacc_barrier(AIACC_WORLD, nullptr, nullptr)); }
  void max_over_ranks(std::span<double> values) const;  // for each value separately
  double sum(double value) const;
  std::vector<std::uint64_t> gather(std::uint64_t value) const;  // by rank, on all ranks

 private:
  int rank_ = 0;
  int size_ = 1;
  int local_size_ = 1;
};

}  // namespace aiacc::tools

// Failures as exceptions. Part of aiacc.hpp.
#ifndef AIACC_ERROR_HPP
#define AIACC_ERROR_HPP

#include <aiacc/aiacc.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace aiacc {
inline namespace v0 {

class Error : public std::runtime_error {
 public:
  Error(aiacc_status_t status, const std::string &sentence, int rank = -1)
      : std::runtime_error(sentence), status_(status), rank_(rank) {}
  aiacc_status_t status() const noexcept { return status_; }
  const char *name() const noexcept { return aiacc_status_name(status_); }  // "peer failed" and so on
  int rank() const noexcept { return rank_; }                               // that the message concerns, -1 if none
  // All ranks that the message concerns, ascending; after a barrier that timed out, the missing ranks.
  const std::vector<int> &ranks() const noexcept { return *ranks_; }

  // The calling thread's last error, for which `status` was returned.
  static Error last(aiacc_status_t status) {
    Error error(status, aiacc_last_error(), aiacc_last_error_rank());
    std::size_t count = 0;
    if (aiacc_last_error_ranks(nullptr, 0, &count) != AIACC_OK || count == 0) return error;
    auto ranks = std::make_shared<std::vector<int>>(count);
    if (aiacc_last_error_ranks(ranks->data(), count, &count) == AIACC_OK) error.ranks_ = std::move(ranks);
    return error;
  }

 private:
  aiacc_status_t status_;
  int rank_;
  // Shared, so that copies of an exception do not throw.
  std::shared_ptr<const std::vector<int>> ranks_ = std::make_shared<const std::vector<int>>();
};

// Throws the calling thread's last error unless `status` is AIACC_OK.
inline void check(aiacc_status_t status) {
  if (status != AIACC_OK) throw Error::last(status);
}

namespace detail {

inline void require(bool holds, const char *sentence) {
  if (!holds) throw Error(AIACC_ERR_INVALID_ARGUMENT, sentence);
}

}  // namespace detail

}  // namespace v0
}  // namespace aiacc

#endif

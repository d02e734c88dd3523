// An error about several ranks: those that were missing in a barrier that timed out.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"

namespace aiacc {

class ErrorAbout final : public Error {
 public:
  // `ranks` ascend; the first is peer().
  ErrorAbout(Code code, std::string message, std::vector<int> ranks)
      : Error(code, std::move(message), ranks.empty() ? kNoPeer : ranks.front()),
        ranks_(std::make_shared<const std::vector<int>>(std::move(ranks))) {}
  std::span<const int> ranks() const noexcept { return *ranks_; }

 private:
  std::shared_ptr<const std::vector<int>> ranks_;  // exceptions are copied while they propagate, which must not throw
};

// The ranks that an error is about: several, its peer, or none.
inline std::vector<int> ranks_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ErrorAbout& several) {
    return std::vector<int>(several.ranks().begin(), several.ranks().end());
  } catch (const Error& one) {
    return one.peer() < 0 ? std::vector<int>() : std::vector<int>{one.peer()};
  } catch (...) {
    return {};
  }
}

}  // namespace aiacc

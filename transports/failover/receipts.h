// ReceivedNumbers: which messages of one sender and traffic class have come.
#pragma once

#include <cstdint>
#include <set>

namespace aiacc::failover {

class ReceivedNumbers {
 public:
  void add(std::uint64_t number) {
    if (number != complete_) {
      if (number > complete_) beyond_.insert(number);
      return;
    }
    ++complete_;
    while (!beyond_.empty() && *beyond_.begin() == complete_) {
      beyond_.erase(beyond_.begin());
      ++complete_;
    }
  }
  std::uint64_t complete() const noexcept { return complete_; }  // all lower numbers have come
  const std::set<std::uint64_t>& beyond() const noexcept { return beyond_; }

 private:
  std::uint64_t complete_ = 0;
  std::set<std::uint64_t> beyond_;
};

}  // namespace aiacc::failover

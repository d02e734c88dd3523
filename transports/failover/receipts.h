// ReceivedNumbers: which messages of one sender and traffic class have come.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace aiacc::failover {

class ReceivedNumbers {
 public:
  using Ranges = std::map<std::uint64_t, std::uint64_t>;  // from the first to before the end

  void add(std::uint64_t number) {
    if (number < complete_) return;
    auto next = beyond_.upper_bound(number);
    if (next != beyond_.begin() && std::prev(next)->second > number) return;
    std::uint64_t first = number, end = number + 1;
    if (next != beyond_.end() && next->first == end) {
      end = next->second;
      next = beyond_.erase(next);
    }
    if (next != beyond_.begin() && std::prev(next)->second == number) {
      first = std::prev(next)->first;
      beyond_.erase(std::prev(next));
    }
    if (first == complete_) {
      complete_ = end;
    } else {
      beyond_.emplace(first, end);
    }
  }
  std::uint64_t complete() const noexcept { return complete_; }  // all lower numbers have come
  const Ranges& beyond() const noexcept { return beyond_; }

 private:
  std::uint64_t complete_ = 0;
  Ranges beyond_;  // apart from each other and from complete_
};

}  // namespace aiacc::failover

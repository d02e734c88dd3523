#include "groupcomm/gradient/waiting_launches.h"

#include <algorithm>

namespace aiacc::gradient {

WaitingLaunches::Waiting& WaitingLaunches::add(std::int32_t priority, std::uint64_t settled) {
  if (first_ == 0) {
    launches_.emplace_back();
  } else {
    std::rotate(launches_.begin(), launches_.begin() + 1, launches_.end());
    --first_;
  }
  const std::size_t last = launches_.size() - 1;
  const auto begin = launches_.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(first_ + settled, last));
  const auto place =
      std::find_if(begin, launches_.end() - 1, [&](const Waiting& one) { return one.priority < priority; });
  std::rotate(place, launches_.end() - 1, launches_.end());
  place->priority = priority;
  place->tensors.clear();
  place->mine.clear();
  added_ = static_cast<std::size_t>(place - launches_.begin());
  return *place;
}

std::uint32_t WaitingLaunches::behind_added() const noexcept {
  return added_ + 1 < launches_.size() ? launches_[added_ + 1].tensors.front() : kNoIndex;
}

std::uint64_t WaitingLaunches::fit(std::uint64_t bytes) const noexcept {
  std::uint64_t count = 0, total = 0;
  for (std::size_t at = first_; at < launches_.size(); ++at) {
    total += launches_[at].bytes;
    if (count != 0 && total > bytes) break;
    ++count;
  }
  return count;
}

}  // namespace aiacc::gradient

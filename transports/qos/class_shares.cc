#include "transports/qos/class_shares.h"

#include <algorithm>

namespace aiacc {

std::size_t ClassShares::first_of_several(unsigned waiting) const noexcept {
  constexpr auto kLatency = static_cast<std::size_t>(TrafficClass::kLatency);
  if ((waiting & 1U) != 0) return 0;
  if ((waiting >> kLatency & 1U) != 0 && ahead_[kLatency] <= for_share(kLatency, kLead)) return kLatency;
  std::size_t least = static_cast<std::size_t>(std::countr_zero(waiting));
  for (std::size_t traffic = least + 1; traffic < kTrafficClasses; ++traffic) {
    if ((waiting >> traffic & 1U) != 0 && ahead_[traffic] < ahead_[least]) least = traffic;
  }
  return least;
}

// Afterwards the class of `waiting` that has had least is at 0, and so is any other one that would be below: it did not use its share.
void ClassShares::count(std::size_t traffic, std::uint64_t bytes, unsigned waiting) noexcept {
  ahead_[traffic] = std::min(ahead_[traffic], for_share(traffic, kLead)) + for_share(traffic, bytes);
  std::uint64_t least = ahead_[traffic];
  for (std::size_t each = 0; each < kTrafficClasses; ++each) {
    if ((waiting >> each & 1U) != 0) least = std::min(least, ahead_[each]);
  }
  even_ = true;
  for (std::uint64_t& ahead : ahead_) {
    ahead -= std::min(ahead, least);
    even_ = even_ && ahead == 0;
  }
}

}  // namespace aiacc

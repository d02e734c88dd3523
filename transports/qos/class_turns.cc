#include "transports/qos/class_turns.h"

#include <bit>

namespace aiacc {

std::optional<std::size_t> ClassTurns::next(unsigned waiting, const Bytes& bytes, Instant now,
                                            unsigned held_back) const noexcept {
  for (unsigned left = permitted(waiting & ~held_back, now); left != 0;) {
    const std::size_t traffic = shares_.first(left);
    left &= ~(1U << traffic);
    const bool turns = is_long(traffic) && (takes_turns_ || latency_in_use_);
    const bool fits = under_way_ == 0 || under_way_ + bytes[traffic] <= kUnderWay;
    if (turns && !fits) return std::nullopt;  // a shorter one of another class does not overtake it
    return traffic;
  }
  return std::nullopt;
}

unsigned ClassTurns::permitted(unsigned waiting, Instant now) const noexcept {
  for (std::size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
    if (rates_[traffic] > 0 && permitted_[traffic] > now) waiting &= ~(1U << traffic);
  }
  return waiting;
}

Instant ClassTurns::next_by_rate(unsigned waiting, Instant now) const noexcept {
  Instant soonest = kNever;
  for (unsigned left = waiting; left != 0; left &= left - 1) {
    const auto traffic = static_cast<std::size_t>(std::countr_zero(left));
    if (rates_[traffic] > 0 && permitted_[traffic] > now) soonest = std::min(soonest, permitted_[traffic]);
  }
  return soonest;
}

void ClassTurns::began(std::size_t traffic, std::uint64_t bytes, unsigned waiting, Instant now) noexcept {
  shares_.took(traffic, bytes, waiting);
  if (rates_[traffic] == 0) return;
  const double its = static_cast<double>(bytes) / static_cast<double>(rates_[traffic]);
  const Instant from = std::max(permitted_[traffic], now - kBurst);
  permitted_[traffic] = after(from, std::chrono::duration_cast<Duration>(std::chrono::duration<double>(its)));
}

}  // namespace aiacc

#include "transports/tcp/stream_count.h"

#include <algorithm>
#include <utility>

namespace aiacc::tcp {

void StreamCount::limit(int most) noexcept {
  if (most >= most_) return;
  most_ = most;
  least_ = std::min(least_, most);
  found_ = std::min(found_, most);
  if (wanted_ > most) try_number(Phase::kMeasure, found_);
}

void StreamCount::period(double bytes_per_second) noexcept {
  if (!adapts()) return;
  if (periods_++ > 0) sum_ += bytes_per_second;
  if (periods_ <= kPeriods) return;
  periods_ = 0;
  measured(std::exchange(sum_, 0) / kPeriods);
}

void StreamCount::measured(double speed) noexcept {
  switch (phase_) {
    case Phase::kMeasure:
      speed_ = best_ = speed;
      step_ = std::max(1, found_ / 8);
      changed_ = false;
      try_more();
      break;
    case Phase::kMore:
      if (speed <= speed_ * (1 + kGain)) {
        try_fewer();
        break;
      }
      found_ = wanted_;
      speed_ = best_ = speed;
      changed_ = true;
      step_ *= 2;
      try_more();
      break;
    case Phase::kFewer:
      if (speed < best_ * (1 - kLoss)) {
        keep();
        break;
      }
      found_ = wanted_;
      speed_ = speed;
      changed_ = true;
      try_fewer();
      break;
    case Phase::kKeep:
      if (speed < speed_ * (1 - kDrop)) {
        keep_ = kShortestKeep;
      } else if (++kept_ < keep_) {
        break;
      }
      phase_ = Phase::kMeasure;
      measured(speed);
      break;
  }
}

void StreamCount::try_number(Phase phase, int number) noexcept {
  phase_ = phase;
  wanted_ = number;
  periods_ = 0;
  sum_ = 0;
}

void StreamCount::try_more() noexcept {
  if (found_ == most_) return try_fewer();
  try_number(Phase::kMore, std::min(found_ + step_, most_));
}

void StreamCount::try_fewer() noexcept {
  if (found_ == least_) return keep();
  try_number(Phase::kFewer, std::max(found_ - std::max(1, found_ / 16), least_));
}

void StreamCount::keep() noexcept {
  keep_ = changed_ ? kShortestKeep : std::min(2 * keep_, kLongestKeep);
  kept_ = 0;
  try_number(Phase::kKeep, found_);
}

}  // namespace aiacc::tcp

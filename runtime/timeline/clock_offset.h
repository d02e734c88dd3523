// ClockOffset: how much another host's clock is ahead of this one's, from round trips (Cristian's algorithm): the answer was made
// somewhere between the question and its arrival, so half of the round trip is the greatest error. The shortest of the last
// round trips counts; later ones replace it, because clocks drift.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/time.h"

namespace aiacc {

class ClockOffset {
 public:
  static constexpr std::size_t kKept = 32;

  // `there` was the other's time between `asked` and `answered` here.
  void add(Instant asked, Instant there, Instant answered) noexcept {
    const Duration trip = answered - asked;
    trips_[samples_++ % kKept] = {trip, there - (asked + trip / 2)};
  }
  std::size_t samples() const noexcept { return samples_; }
  // To add to a time of here.
  Duration ahead() const noexcept { return best().ahead; }
  // What ahead() may be wrong by.
  Duration error() const noexcept { return best().trip / 2; }

 private:
  struct Trip {
    Duration trip{};
    Duration ahead{};
  };
  Trip best() const noexcept {
    const auto end = trips_.begin() + static_cast<std::ptrdiff_t>(std::min(samples_, kKept));
    const auto shortest =
        std::min_element(trips_.begin(), end, [](const Trip& a, const Trip& b) { return a.trip < b.trip; });
    return shortest == end ? Trip{} : *shortest;
  }

  std::array<Trip, kKept> trips_{};
  std::size_t samples_ = 0;
};

}  // namespace aiacc

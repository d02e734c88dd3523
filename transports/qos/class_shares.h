// ClassShares: which of the traffic classes between two ranks sends next. Control goes first. Latency goes before the others until it
// is kLead bytes ahead of its share; from there on, and among bulk and background always, the class goes first that has had
// least for its share. What a class does not use the others have, and it gets nothing for it later. A class that sends out of its turn,
// because those before it cannot just now, is charged for it, but is never more than kLead bytes and one part ahead.
//
// A state of bytes alone, without a clock. Classes i and j that always have something to send, with shares s and parts of at most p bytes,
// have sent b with |b_i/s_i - b_j/s_j| <= p_i/s_i + p_j/s_j; with i = latency, kLead/s_i more.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "transports/message.h"

namespace aiacc {

class ClassShares {
 public:
  using Weights = std::array<std::uint32_t, kTrafficClasses>;  // that of control does not count
  static constexpr Weights kDefault = {1, 90, 9, 1};
  static constexpr std::uint32_t kMostShare = 1000;
  static constexpr std::uint64_t kLead = 4 << 20;
  // How many bytes ahead of its share a class may be that has connections of its own, while the other's can take nothing just now.
  static constexpr std::uint64_t kSlack = 512 << 10;

  explicit ClassShares(const Weights& weights = kDefault) noexcept : weights_(weights) {}

  // Of `waiting`, a bit for each class and at least one, the class that sends first.
  std::size_t first(unsigned waiting) const noexcept {
    if (std::popcount(waiting) < 2) return static_cast<std::size_t>(std::countr_zero(waiting));
    return first_of_several(waiting);
  }
  // The class takes `bytes` while all of `waiting`, itself among them, have something to send.
  void took(std::size_t traffic, std::uint64_t bytes, unsigned waiting) noexcept {
    const bool alone = (waiting & ~(1U << traffic) & kShared) == 0;
    if ((alone && even_) || (kShared >> traffic & 1U) == 0) return;
    count(traffic, bytes, waiting & kShared);
  }
  // The class has had so much more for its share than the other one that it should wait for it.
  bool far_ahead(std::size_t traffic, std::size_t other) const noexcept {
    return ahead_[traffic] > ahead_[other] + for_share(traffic, kSlack);
  }

 private:
  static constexpr unsigned kShared = 0b1110;  // the classes that have shares
  static constexpr std::uint64_t kOne = 2520;  // which 1 to 10 divide

  std::uint64_t for_share(std::size_t traffic, std::uint64_t bytes) const noexcept {
    return bytes * kOne / weights_[traffic];
  }
  std::size_t first_of_several(unsigned waiting) const noexcept;
  void count(std::size_t traffic, std::uint64_t bytes, unsigned waiting) noexcept;

  Weights weights_;
  // Bytes for each unit of share, times kOne, beyond those of the class that has had least.
  std::array<std::uint64_t, kTrafficClasses> ahead_{};
  bool even_ = true;  // all are 0
};

}  // namespace aiacc

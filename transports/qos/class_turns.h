// ClassTurns: which of the messages that wait for one peer begins next, where a library sends all that it is given in one order of its own
// (transports/active). Bulk and background get no more under way at a time than keeps a fast line busy, so that the rest waits where
// shares (class_shares.h) decide; and a class with a rate begins no more than its rate permits. Nothing waits where no class has a rate
// and none has anything to share: classes take turns from the first background message on, if one was given a share, and
// while latency is in use.
//
// A state of bytes and of the instants at which rates permit more; the caller has the clock and the messages.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "transports/message.h"
#include "transports/qos/class_shares.h"

namespace aiacc {

class ClassTurns {
 public:
  using Bytes = std::array<std::uint64_t, kTrafficClasses>;  // by class
  // Two of the longest chunks: while one arrives, the next is on its way.
  static constexpr std::uint64_t kUnderWay = 2 * MessagePort::kChunkBytes;
  // A class that was idle may be so long ahead of its rate.
  static constexpr Duration kBurst = std::chrono::milliseconds(1);

  struct Limits {
    ClassShares::Weights shares = ClassShares::kDefault;
    Bytes bytes_per_second{};  // 0: no rate
    bool takes_turns = false;  // a class was given a share
  };

  explicit ClassTurns(const Limits& limits) noexcept
      : shares_(limits.shares), rates_(limits.bytes_per_second), takes_turns_(limits.takes_turns) {}

  // A message of this class is posted. False: it need not wait where nothing else does.
  bool posts(TrafficClass traffic, bool latency_in_use) noexcept {
    takes_turns_ = takes_turns_ || traffic == TrafficClass::kBackground;
    latency_in_use_ = latency_in_use;
    const auto its = static_cast<std::size_t>(traffic);
    return rates_[its] > 0 || (is_long(its) && (takes_turns_ || latency_in_use));
  }
  // Of the classes `waiting`, a bit for each, whose oldest messages have `bytes`: the one that begins its message now. None: each waits for its
  // rate, or for what is under way. `held_back`: those that wait for something else.
  std::optional<std::size_t> next(unsigned waiting, const Bytes& bytes, Instant now,
                                  unsigned held_back = 0) const noexcept;
  // Those of the classes `waiting` that do not wait for their rate.
  unsigned permitted(unsigned waiting, Instant now) const noexcept;
  // When the first of these that wait for their rate may go on; kNever if none does.
  Instant next_by_rate(unsigned waiting, Instant now) const noexcept;
  // The class has begun a message, while all of `waiting`, itself among them, had one to send.
  void began(std::size_t traffic, std::uint64_t bytes, unsigned waiting, Instant now) noexcept;
  // Also of messages that began while nothing had to wait; each was counted by took().
  void took(std::size_t traffic, std::uint64_t bytes) noexcept { under_way_ += counted(traffic, bytes); }
  void ended(std::size_t traffic, std::uint64_t bytes) noexcept { under_way_ -= counted(traffic, bytes); }

 private:
  static constexpr bool is_long(std::size_t traffic) noexcept {
    return traffic >= static_cast<std::size_t>(TrafficClass::kBulk);
  }
  static constexpr std::uint64_t counted(std::size_t traffic, std::uint64_t bytes) noexcept {
    return is_long(traffic) ? bytes : 0;
  }

  ClassShares shares_;
  Bytes rates_;
  bool takes_turns_;
  bool latency_in_use_ = false;
  std::uint64_t under_way_ = 0;                       // of bulk and background
  std::array<Instant, kTrafficClasses> permitted_{};  // when its rate lets each class begin another message
};

}  // namespace aiacc

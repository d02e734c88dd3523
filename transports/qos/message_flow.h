// MessageFlow: what has become of messages that a library was given, from what the peer says of each: the FlowState that a socket would tell of its
// bytes. A library that has sent a message knows no more than that its host's system has the bytes.
//
// A state of bytes and times alone, without a clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "base/io/flow_state.h"
#include "base/time.h"
#include "transports/message.h"

namespace aiacc {

class MessageFlow {
 public:
  // The path may become longer, so the least round trip time is that of the present span and of the one before. Each begins with a
  // message that had the path for itself: the others wait in the queue that the sender keeps.
  static constexpr Duration kSpan = std::chrono::minutes(2);
  // The round trip of shorter messages is counted only until there is one of a longer: that has its time on the line in it, too.
  static constexpr std::uint64_t kLeastTimed = 8 << 10;

  // A message that would begin a span waits until nothing is under way.
  bool waits_for_path(std::uint64_t bytes, Instant now) const noexcept {
    if (under_way_.empty() || !counts(bytes)) return false;
    const Message& oldest = under_way_.front();
    return begins_span(bytes, now) && !(oldest.alone && counts(oldest.bytes) && begins_span(oldest.bytes, now));
  }
  void sent(TrafficClass traffic, std::uint64_t number, std::uint64_t bytes, Instant now) {
    under_way_.push_back({traffic, number, bytes, now, under_way_.empty()});
    state_.held += bytes;
  }
  // The peer has this message. False: it is none of those under way.
  bool acknowledged(TrafficClass traffic, std::uint64_t number, Instant now) noexcept {
    const auto one = std::find_if(under_way_.begin(), under_way_.end(), [&](const Message& each) {
      return each.number == number && each.traffic == traffic;
    });
    if (one == under_way_.end()) return false;
    state_.held -= one->bytes;
    state_.acknowledged += one->bytes;
    if (counts(one->bytes)) took(*one, now);
    under_way_.erase(one);
    return true;
  }
  const io::FlowState& state() const noexcept { return state_; }

 private:
  struct Message {
    TrafficClass traffic;
    std::uint64_t number;
    std::uint64_t bytes;
    Instant sent;
    bool alone;  // nothing else was under way
  };

  static constexpr bool is_long(std::uint64_t bytes) noexcept { return bytes >= kLeastTimed; }
  bool counts(std::uint64_t bytes) const noexcept { return is_long(bytes) || !of_long_; }
  bool begins_span(std::uint64_t bytes, Instant now) const noexcept {
    return present_ == Duration{} || (is_long(bytes) && !of_long_) || now - since_ >= kSpan;
  }

  void took(const Message& one, Instant now) noexcept {
    const Duration time = now - one.sent;
    if (one.alone && begins_span(one.bytes, now)) {
      const bool goes_on = is_long(one.bytes) == of_long_;
      before_ = goes_on ? present_ : Duration{};
      present_ = time;
      since_ = now;
      of_long_ = is_long(one.bytes);
    }
    present_ = std::min(present_, time);
    state_.least_rtt = before_ == Duration{} ? present_ : std::min(before_, present_);
  }

  std::deque<Message> under_way_;  // the oldest, which are acknowledged first, in front
  io::FlowState state_;
  bool of_long_ = false;  // the times are of messages of at least kLeastTimed
  Duration present_{};    // the least time since since_; zero: none yet
  Duration before_{};
  Instant since_{};
};

}  // namespace aiacc

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
  // The path may become longer, so the least round trip time is that of the present span and of the one before.
  static constexpr Duration kSpan = std::chrono::minutes(2);
  // The round trip of shorter messages is not counted: that of a longer one has its time on the line in it, too.
  static constexpr std::uint64_t kLeastTimed = 8 << 10;

  void sent(TrafficClass traffic, std::uint64_t number, std::uint64_t bytes, Instant now) {
    under_way_.push_back({traffic, number, bytes, now});
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
    if (one->bytes >= kLeastTimed) took(now - one->sent, now);
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
  };

  void took(Duration time, Instant now) noexcept {
    if (present_ == Duration{} || now - since_ >= kSpan) {
      before_ = present_;
      present_ = time;
      since_ = now;
    }
    present_ = std::min(present_, time);
    state_.least_rtt = before_ == Duration{} ? present_ : std::min(before_, present_);
  }

  std::deque<Message> under_way_;  // the oldest, which are acknowledged first, in front
  io::FlowState state_;
  Duration present_{};  // the least time since since_; zero: none yet
  Duration before_{};
  Instant since_{};
};

}  // namespace aiacc

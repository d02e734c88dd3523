// DelayWindow: how many bytes one connection, or one path through a library (ClassWindows), may have under way, so that
// what it keeps waiting in the network's queues waits no longer than a limit. The kernel's congestion control fills a
// queue until packets are lost or marked; on a link with a deep one everything else waits behind it. This is a cap
// above that control, which stays in place; where nothing queues it grows until it does not matter.
//
//   window <- (window + delivered rate * (least round trip + limit) + sqrt(kStep * window)) / 2       once a period
//
// A line that is full delivers at its rate whatever the window is, so each period halves the window's distance from the bytes that the line
// holds, with the limit's worth of queue; if nothing queues, the delivered rate is the window over a round trip, and the window grows (to twice itself at
// most). It is the rule of FAST TCP (Wei et al., IEEE/ACM ToN 2006) with gamma = 1/2, but for a target that is a time, so the queue hardly grows
// with the number of senders. The root is what makes senders of one line equal: it is a larger part of a smaller window. A constant would do
// so too, but takes ten times as long on a line that is ten times as fast.
//
// The least round trip is the kernel's and of minutes: a connection that was made while others kept a queue takes that for the path's length,
// and adds its own.
//
// What was delivered says nothing of the line unless the window held something back or there was a queue all the time. Without such a queue
// it does not lower the window: the sender was slow to look, or had little to write. A state of bytes and times alone, without a clock.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/io/flow_state.h"
#include "base/time.h"

namespace aiacc {

class DelayWindow {
 public:
  static constexpr std::uint64_t kFirst = 16 << 10;  // about the kernel's own first window
  static constexpr std::uint64_t kLeast = 4 << 10;
  static constexpr double kStep = 1024;  // 7 % of a window of 200 KB
  static constexpr Duration kShortest = std::chrono::milliseconds(1);

  // `first`: of a connection that has carried something, what it has under way, to which nothing is added until the rate is known.
  explicit DelayWindow(Duration limit, std::uint64_t first = kFirst) noexcept
      : limit_(limit), bytes_(std::max(first, kFirst)), begins_(first > kFirst) {}

  // How many bytes may be written now; 0: none, look again after pause().
  std::uint64_t room(const io::FlowState& state, Instant now) noexcept;
  Duration pause() const noexcept;
  // The same of a message, which cannot be cut: whether it may be written now. One always may where nothing is under way. What was
  // acknowledged was so at this moment, so periods end with that and there is no pause: each acknowledgement is a reason to ask again.
  bool admits(std::uint64_t message, const io::FlowState& state, Instant now) noexcept;
  // There is nothing more to write for the time being.
  void idle() noexcept;

  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  void look(const io::FlowState& state, Instant now) noexcept;
  void begin(const io::FlowState& state, Instant now) noexcept;
  void end_period(const io::FlowState& state, Instant now) noexcept;
  void came_back(const io::FlowState& state) noexcept;
  double stands(double rate) const noexcept;
  std::uint64_t worth_writing() const noexcept;

  Duration limit_;
  std::uint64_t bytes_;
  bool begins_;           // with what was under way, and it is no more than what is left of that
  double rate_ = 0;       // of the last period; 0: not known
  Duration least_rtt_{};  // as of the last look
  bool running_ = false;
  bool idle_ = false;  // since the last look there was nothing to write
  // The present period.
  Instant since_{};
  std::uint64_t acknowledged_ = 0;  // when it began
  bool limited_ = false;            // the window held something back
  std::uint64_t least_held_ = 0;    // at the looks since
  Instant looked_{};
  std::uint64_t seen_ = 0;  // acknowledged at the last look
  Instant moved_{};         // when that was found to be more
  // What was too short to be a period of its own: it is no reason to lower the window, as it began with an empty line.
  Duration before_{};
  std::uint64_t delivered_before_ = 0;
};

}  // namespace aiacc

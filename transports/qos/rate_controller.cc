#include "transports/qos/rate_controller.h"

#include <algorithm>
#include <utility>

namespace aiacc {
namespace {

constexpr double kMostDelay = 0.05;   // above the target, of the round trip; less is no congestion
constexpr double kMostLost = 0.002;   // of a line that loses packets by itself
constexpr double kMostPaused = 0.02;  // which a burst costs on a line that is not congested
constexpr double kUsed = 0.85;        // of the rate: that was sent
constexpr double kProven = 0.6;       // of the rate: that was delivered; it may have grown within the round trip
// A receiver sends at most one notification for each connection in this time (DCQCN's N).
constexpr Duration kNotificationTime = std::chrono::microseconds(50);
// Behind a mark of classic ECN the receiver repeats it until the sender has answered: about twice as many are counted as there were
// (888 for 369 in a measurement).
constexpr double kRepeats = 2;

double delay_of(const RateController::Epoch& epoch, const RateController::Path& path) noexcept {
  if (epoch.rtt <= Duration{} || epoch.least_rtt <= Duration{}) return 0;
  const Duration target = 3 * epoch.least_rtt / 2 + path.slack;
  return std::max(0.0, seconds(epoch.rtt - target) / seconds(epoch.rtt));
}

}  // namespace

Duration RateController::length_for_tcp(Duration rtt) noexcept {
  using namespace std::chrono_literals;
  return std::clamp<Duration>(2 * rtt, 1ms, 20ms);
}

Duration RateController::length_for_rdma(Duration rtt) noexcept {
  using namespace std::chrono_literals;
  return std::clamp<Duration>(4 * rtt, 10ms, 20ms);
}

// A thousand senders at the floor do not fill the line. A floor that did not shrink with their number, such as a quarter of the line for
// one that sends to a single peer, would make an incast of sixteen four times what the receiver's line carries.
double RateController::floor(const Path& path) const noexcept {
  return std::min(path.most, std::max(kLeast, path.weight * path.line / 1024));
}

void RateController::epoch(const Epoch& epoch, const Path& path) noexcept {
  const double length = seconds(epoch.length);
  if (length <= 0) return;
  // What the line gave lately. A sender that had little to send delivered little, which says nothing about the line; nor does the first
  // epoch, of which a round trip went by before anything could be delivered.
  const double delivered = epoch.delivered / length;
  const double before = std::exchange(delivered_, delivered);
  const double proven = epoch.sender_limited || before <= 0 ? kUnlimited : std::max(before, delivered);
  if (epoch.timed_out) {
    cut(0, proven, 0, path);  // it recovers to half of what it was, as slow start after a loss (RFC 5681)
    return;
  }
  if (epoch.delivered <= 0 && epoch.lost <= kMostLost) return;

  const double said = std::clamp(std::max(epoch.marked, epoch.paused), 0.0, 1.0);
  if (limits()) alpha_ = (1 - kGain) * alpha_ + kGain * said;
  const double delay = delay_of(epoch, path);
  const bool marked = epoch.marked > 0 || epoch.paused > kMostPaused;
  if (marked || delay > kMostDelay || epoch.lost > kMostLost) {
    // What is told within a round trip of a cut is about what was sent before it.
    const bool old_news = just_cut_ && epoch.length < 4 * epoch.rtt;
    just_cut_ = !old_news;
    if (old_news) return;
    const double by_marks = marked ? 1 - alpha_ / 2 : 1;
    const double by_delay = std::max(1 - 0.8 * delay, 0.5);
    const double by_loss = epoch.lost > kMostLost ? std::max(1 - 30 * epoch.lost, 0.7) : 1;
    // Who sends less than he may is not whom the line waits for.
    const double least = epoch.sender_limited ? epoch.sent / length : 0;
    cut(std::min({by_marks, by_delay, by_loss}), proven, least, path);
    return;
  }
  just_cut_ = false;
  const bool used = epoch.sent >= kUsed * rate_ * length && epoch.delivered >= kProven * rate_ * length;
  if (limits() && used && !epoch.sender_limited) grow(path);
}

void RateController::cut(double factor, double proven, double least, const Path& path) noexcept {
  ++cuts_;
  calm_ = 0;
  double from = std::min({rate_, path.most, proven});
  if (from == kUnlimited) from = path.line;
  if (from <= 0) return;
  rate_ = std::min(rate_, std::max({floor(path), from * factor, std::min(from, least)}));
  target_ = from - (from - rate_) / 8;
}

void RateController::grow(const Path& path) noexcept {
  ++calm_;
  if (calm_ > kFastRecovery) {
    const double step = path.weight * kStep * path.line;
    const int faster = calm_ - kFastRecovery - kSlowGrowth;
    target_ += step * std::max(1, 5 * faster);
  }
  target_ = std::min(target_, path.most);
  rate_ = std::max(rate_, std::min((rate_ + target_) / 2, path.most));
}

bool TcpSignals::add(const TcpCounters& before, const TcpCounters& now) noexcept {
  const auto later = [](std::uint32_t from, std::uint32_t to) { return static_cast<std::int32_t>(to - from) >= 0; };
  if (now.sent_bytes < before.sent_bytes || now.sent_again_bytes < before.sent_again_bytes ||
      now.acknowledged_bytes < before.acknowledged_bytes || now.busy < before.busy ||
      !later(before.delivered, now.delivered) || !later(before.marked, now.marked))
    return false;
  sum_.sent += static_cast<double>(now.sent_bytes - before.sent_bytes);
  sum_.delivered += static_cast<double>(now.acknowledged_bytes - before.acknowledged_bytes);
  sent_again_ += static_cast<double>(now.sent_again_bytes - before.sent_again_bytes);
  segments_ += now.delivered - before.delivered;
  marked_ += (now.marked - before.marked) / (now.exact_marks ? 1 : kRepeats);
  busy_ = std::max(busy_, now.busy - before.busy);
  held_ += std::max(Duration{}, now.held_by_receiver - before.held_by_receiver);
  // Of several connections the least delayed one: one of them may be on a worse path, and the others carry more for it.
  const bool carried = now.delivered != before.delivered;
  if (carried && now.rtt > Duration{} && (sum_.rtt == Duration{} || now.rtt < sum_.rtt)) {
    sum_.rtt = now.rtt;
    sum_.least_rtt = now.least_rtt;
  }
  sum_.timed_out = sum_.timed_out || now.timed_out;
  return true;
}

RateController::Epoch TcpSignals::over(Duration length) const noexcept {
  RateController::Epoch epoch = sum_;
  epoch.length = length;
  if (segments_ > 0) epoch.marked = std::min(1.0, marked_ / segments_);
  if (epoch.sent > 0) epoch.lost = std::min(1.0, sent_again_ / epoch.sent);
  epoch.sender_limited = 10 * busy_ < 8 * length || 10 * held_ > 2 * length;
  // One connection that waits for its timer is no reason while another one delivers.
  epoch.timed_out = epoch.timed_out && epoch.delivered <= 0;
  return epoch;
}

RateController::Epoch RdmaSignals::over(Duration length) const noexcept {
  RateController::Epoch epoch;
  epoch.length = length;
  epoch.sent = static_cast<double>(sent_bytes);
  epoch.delivered = static_cast<double>(completed_bytes);
  const double possible = seconds(length) / seconds(kNotificationTime) * static_cast<double>(queue_pairs);
  if (possible > 0) epoch.marked = std::min(1.0, static_cast<double>(notifications) / possible);
  if (sent_bytes > 0) epoch.lost = std::min(1.0, static_cast<double>(lost_packets * packet_bytes) / epoch.sent);
  if (length > Duration{}) epoch.paused = std::min(1.0, seconds(paused) / seconds(length));
  epoch.rtt = rtt;
  epoch.least_rtt = least_rtt;
  epoch.sender_limited = sender_limited;
  epoch.timed_out = timed_out && completed_bytes == 0;
  return epoch;
}

}  // namespace aiacc

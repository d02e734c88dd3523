#include "transports/qos/delay_window.h"

#include <algorithm>
#include <cmath>

namespace aiacc {
namespace {

// Segments of this length leave none that is nearly empty.
constexpr std::uint64_t kSegment = 1448;
constexpr double kMostBytes = 1e12;
constexpr Duration kShortestPause = std::chrono::microseconds(50);
constexpr Duration kLongestPause = std::chrono::milliseconds(5);

}  // namespace

void DelayWindow::begin(const io::FlowState& state, Instant now) noexcept {
  running_ = true;
  limited_ = false;
  least_held_ = ~std::uint64_t{0};
  since_ = looked_ = now;
  acknowledged_ = seen_ = state.acknowledged;
}

void DelayWindow::look(const io::FlowState& state, Instant now) noexcept {
  least_rtt_ = state.least_rtt;
  if (idle_) came_back(state);
  if (!running_) {
    begin(state, now);
    moved_ = now;
  } else {
    least_held_ = std::min(least_held_, state.held);
    looked_ = now;
    if (state.acknowledged != seen_) moved_ = now;
    seen_ = state.acknowledged;
    if (before_ + (now - since_) >= std::max(kShortest, state.least_rtt + limit_)) end_period(state, now);
  }
  if (begins_) bytes_ = std::max(kFirst, std::min(bytes_, state.held));
}

std::uint64_t DelayWindow::room(const io::FlowState& state, Instant now) noexcept {
  look(state, now);
  const std::uint64_t room = bytes_ > state.held ? bytes_ - state.held : 0;
  if (room >= worth_writing()) return std::max(room / kSegment * kSegment, std::min(room, kSegment));
  limited_ = true;
  return 0;
}

bool DelayWindow::admits(std::uint64_t message, const io::FlowState& state, Instant now) noexcept {
  if (!running_ || idle_ || state.acknowledged != seen_) look(state, now);
  if (state.held == 0 || state.held + message <= bytes_) return true;
  limited_ = true;
  return false;
}

void DelayWindow::end_period(const io::FlowState& state, Instant now) noexcept {
  const Duration length = now - since_;
  const std::uint64_t delivered = state.acknowledged - acknowledged_;
  const double rate = static_cast<double>(delivered + delivered_before_) / seconds(length + before_);
  const bool queued = length > before_ && static_cast<double>(least_held_) > stands(rate);
  if (delivered > 0 && (limited_ || queued)) {
    rate_ = rate;
    begins_ = false;
    const auto now_has = static_cast<double>(bytes_);
    const double wanted = std::min(kMostBytes, rate_ * seconds(state.least_rtt + limit_) + std::sqrt(kStep * now_has));
    if (limited_ && wanted > now_has) {
      bytes_ = static_cast<std::uint64_t>(wanted >= 2 * now_has ? 2 * now_has : (now_has + wanted) / 2);
    } else if (queued && wanted < now_has) {
      bytes_ = std::max(kLeast, static_cast<std::uint64_t>((now_has + wanted) / 2));
    }
  }
  before_ = {};
  delivered_before_ = 0;
  begin(state, now);
}

// A quarter of what it keeps in queues.
std::uint64_t DelayWindow::worth_writing() const noexcept {
  const double queue = static_cast<double>(bytes_) * (seconds(limit_) / seconds(least_rtt_ + limit_));
  return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(queue / 4), kSegment, bytes_ / 2);
}

// Until so much is free, at the rate of which the window is: one period in which acknowledgements were late has next to none. A peer that
// has not read for some time is not expected to begin the next moment.
Duration DelayWindow::pause() const noexcept {
  const Duration usual = std::max<Duration>(std::chrono::milliseconds(10), 4 * (least_rtt_ + limit_));
  if (looked_ - moved_ > usual) return kLongestPause;
  if (rate_ <= 0) return kShortestPause;
  const double part = static_cast<double>(worth_writing()) / static_cast<double>(bytes_);
  const double wait = part * seconds(least_rtt_ + limit_);
  return std::clamp(Duration(std::llround(std::min(wait, 1.0) * 1e9)), kShortestPause, kLongestPause);
}

void DelayWindow::idle() noexcept { idle_ = running_; }

// Nothing was written since, so that no less was held meanwhile than is now: the line was busy, or the period is over. Little may be
// held because its acknowledgement is delayed.
void DelayWindow::came_back(const io::FlowState& state) noexcept {
  idle_ = false;
  if (state.held > std::max(kFirst, bytes_ / 8)) return;
  if (limited_ && least_held_ > 0) {
    before_ += looked_ - since_;
    delivered_before_ += seen_ - acknowledged_;
  }
  running_ = false;
}

// More than this under way, at this rate, is a queue.
double DelayWindow::stands(double rate) const noexcept { return rate * seconds(least_rtt_ + limit_ / 4); }

}  // namespace aiacc

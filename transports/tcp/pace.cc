#include "transports/tcp/pace.h"

#include <algorithm>
#include <cmath>

namespace aiacc::tcp {
namespace {

constexpr double kSlack = 1.25;
// Shorter stays of a chunk are those of a busy machine.
constexpr Duration kPatience = std::chrono::milliseconds(5);

Duration time_of(double bytes, double rate) noexcept {
  constexpr double kLongest = 1e15;  // ns
  return Duration(std::llround(std::min(bytes / rate * 1e9, kLongest)));
}

}  // namespace

std::uint64_t Pace::took(std::uint64_t bytes, Instant now) noexcept {
  if (forgotten(now)) {
    rate_ = 0;
    samples_ = 0;
    busy_ = {};
    measured_bytes_ = 0;
    delivered_ = given_;
  }
  if (backlog(now) == 0) {
    delivered_ = given_;
    if (since_ > begun_) busy_ += since_ - begun_;
    since_ = begun_ = now;
  }
  given_ += bytes;
  expected_ += bytes;
  return given_;
}

void Pace::arrived(std::uint64_t position, std::uint64_t bytes, Instant taken, Instant now) noexcept {
  expected_ -= bytes;
  const Duration took = now - taken;
  delay_ = samples_ == 0 ? took : (7 * delay_ + took) / 8;
  samples_ = std::min(samples_ + 1, kEnough);
  progress(position, now);
}

void Pace::given_arrived(std::uint64_t bytes, Instant now) noexcept {
  progress(std::min(delivered_ + bytes, given_ - expected_), now);
}

void Pace::progress(std::uint64_t to, Instant now) noexcept {
  since_ = now;
  if (to <= delivered_) return;
  measured_bytes_ += static_cast<double>(to - delivered_);
  delivered_ = to;
  busy_ += now - begun_;
  begun_ = now;
  if (busy_ <= Duration{} || (busy_ < kWindow && delivered_ < given_)) return;
  rate_ = measured_bytes_ / (static_cast<double>(busy_.count()) / 1e9);
  if (busy_ < kRemembered) return;
  const Duration kept = busy_ / 2;
  measured_bytes_ *= static_cast<double>(kept.count()) / static_cast<double>(busy_.count());
  busy_ = kept;
}

// What nobody expects any more is not acknowledged for certain: it drains at the connection's rate.
std::uint64_t Pace::backlog(Instant now) const noexcept {
  const std::uint64_t all = given_ - delivered_;
  if (expected_ > 0 || all == 0 || rate_ <= 0) return all;
  const auto drained =
      static_cast<std::uint64_t>(std::llround(rate_ * static_cast<double>((now - since_).count()) / 1e9));
  return all > drained ? all - drained : 0;
}

Duration Pace::at_least(double bytes, Instant now) const noexcept {
  const Duration still = expected_ > 0 || given_ > delivered_ ? now - since_ : Duration{};
  return rate_ > 0 ? std::max(time_of(bytes, rate_), expected_ > 0 ? still : Duration{}) : still;
}

Duration Pace::eta(std::uint64_t bytes, Instant now) const noexcept {
  if (forgotten(now)) return {};
  return at_least(static_cast<double>(backlog(now) + bytes), now);
}

Duration Pace::eta_of(std::uint64_t position, Instant now) const noexcept {
  return at_least(position > delivered_ ? static_cast<double>(position - delivered_) : 0, now);
}

// A connection that was not measured is taken to be as fast as the fastest of the others, so that it gets something to carry.
bool takes(const Pace& mine, std::span<const Pace* const> all, std::uint64_t bytes, std::uint64_t waiting,
           Instant now) noexcept {
  if (!mine.known(now) && mine.backlog(now) >= Pace::kUnknownBytes) return false;
  double fastest = 0;
  for (const Pace* each : all) fastest = std::max(fastest, each->rate(now));
  if (fastest <= 0) fastest = 1;  // only what they carry counts
  const auto eta = [&](const Pace& pace) {
    if (pace.known(now)) return pace.eta(bytes, now);
    return time_of(static_cast<double>(pace.backlog(now) + bytes), fastest);
  };
  double left = static_cast<double>(waiting), rate = 0;
  Duration best = Duration::max() / 2;
  for (const Pace* each : all) {
    left += static_cast<double>(each->backlog(now));
    rate += each->known(now) ? each->rate(now) : fastest;
    best = std::min(best, eta(*each));
  }
  const auto scaled = static_cast<double>(best.count()) * kSlack;
  return eta(mine) <= std::max(time_of(left, rate), Duration(static_cast<std::int64_t>(scaled)));
}

bool takes_again(const Pace& mine, const Pace& its, std::uint64_t position, std::uint64_t bytes, Instant now) noexcept {
  if (!mine.known(now) || mine.backlog(now) > bytes) return false;
  return its.eta_of(position, now) > 2 * mine.eta(bytes, now) + kPatience;
}

}  // namespace aiacc::tcp

#include "transports/active/loss_watch.h"

namespace aiacc::active {

// The last messages of a class are followed by nothing that would show that they were lost. Nor is a count, so it is said again.
void LossWatch::sent() noexcept {
  if (limit_ <= Duration::zero() || (counting_.armed() && said_ == 0)) return;
  said_ = 0;
  loop_.arm(counting_, after(loop_.now(), limit_ / 2));
}

void LossWatch::count() noexcept {
  owner_.say_counts();
  const Duration next = (limit_ / 2) * (1 << said_);
  if (++said_ <= kTimes) loop_.arm(counting_, after(loop_.now(), next));
}

void LossWatch::look() noexcept {
  if (limit_ <= Duration::zero() || looking_.armed()) return;
  missing_ = owner_.gaps();
  looks_ = 0;
  if (missing_ != Counts{}) loop_.arm(looking_, after(loop_.now(), limit_ / kLooks));
}

// A loop that stood still looks once at once, and has taken what came meanwhile when it looks again.
void LossWatch::look_again() noexcept {
  const Counts now = owner_.gaps();
  bool same = false;
  for (std::size_t traffic = 0; traffic < kClasses; ++traffic)
    same = same || (now[traffic] != 0 && now[traffic] == missing_[traffic]);
  if (same && ++looks_ == kLooks) return owner_.messages_lost();
  if (!same) {
    looks_ = 0;
    missing_ = now;
  }
  if (now != Counts{}) loop_.arm(looking_, after(loop_.now(), limit_ / kLooks));
}

}  // namespace aiacc::active

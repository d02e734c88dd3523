#include "transports/stall_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace aiacc {

Instant StallTimes::next(Instant now) noexcept {
  Instant next = std::min(after(now, interval_), deadline_);
  if (deadline_ != kNever) {
    const Duration last = std::min(kLastLook, (deadline_ - began_) / 2);
    const Instant last_look = deadline_ - last;
    next = now < last_look ? std::min(next, last_look) : deadline_;
  }
  interval_ *= 2;
  return next;
}

void StallWatch::arm() { mailbox_.loop().arm(*this, times_.next(mailbox_.loop().now())); }

void StallWatch::expired() noexcept {
  const Instant now = mailbox_.loop().now();
  if (now < deadline_) {
    mailbox_.investigate(group_, sequence_);
    arm();
    return;
  }
  const Mailbox::Suspicion suspicion = mailbox_.suspicion(group_, sequence_);
  std::string waits;
  for (int rank : mailbox_.waited_for(group_, sequence_)) waits += fmt::format("{}{}", waits.empty() ? "" : ", ", rank);
  std::string sentence = fmt::format("{} (operation {}) did not end within {} s: {}", call_, sequence_,
                                     seconds(deadline_ - began_), suspicion.text());
  if (!waits.empty()) sentence += fmt::format("; this rank waits for rank {}", waits);
  stop_.request(std::make_exception_ptr(Error(Code::kTimeout, std::move(sentence), suspicion.rank)));
}

}  // namespace aiacc

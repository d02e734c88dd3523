#include "transports/stall_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace aiacc {

void StallWatch::arm() {
  const Instant now = mailbox_.loop().now();
  Instant next = std::min(after(now, interval_), deadline_);
  const Duration last = std::min(kLastLook, (deadline_ - began_) / 2);
  const Instant last_look = deadline_ - last;
  if (deadline_ != kNever && now < last_look) next = std::min(next, last_look);
  if (deadline_ != kNever && now >= last_look) next = deadline_;
  interval_ *= 2;
  mailbox_.loop().arm(*this, next);
}

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

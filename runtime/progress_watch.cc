#include "runtime/progress_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error_about.h"
#include "runtime/group.h"

namespace aiacc {

void ProgressWatch::add(GroupOperation& operation) {
  running_.push_back(operation);
  const Instant look = next_look(operation);
  // Moved only forward in time: a look that comes too early finds nothing due and arms the next.
  if (look >= armed_for_) return;
  armed_for_ = look;
  loop_.arm(*this, look);
}

Instant ProgressWatch::next_look(const GroupOperation& operation) const noexcept {
  const Instant next = std::min(operation.deadline(), operation.next_question());
  return operation.reported_late ? next : std::min(next, after(operation.began(), late_after_));
}

void ProgressWatch::expired() noexcept {
  const Instant now = loop_.now();
  armed_for_ = kNever;
  running_.for_each([&](GroupOperation& operation) {
    look_at(operation, now);
    const Instant look = next_look(operation);
    if (look > now) armed_for_ = std::min(armed_for_, look);  // past its deadline it is stopped and ends soon
  });
  if (armed_for_ != kNever) loop_.arm(*this, armed_for_);
}

void ProgressWatch::report_circle(const GroupOperation& operation) noexcept {
  try {
    reporter_.late(
        fmt::format("{} has waited for {:.6g} s, and {}. They wait until another thread of one of them sends.",
                    operation.describe(), seconds(loop_.now() - operation.began()), operation.circle.text));
  } catch (const std::bad_alloc&) {  // the deadline's sentence says it again
  }
}

void ProgressWatch::look_at(GroupOperation& operation, Instant now) noexcept {
  try {
    if (now >= operation.next_question() && now < operation.deadline()) {
      operation.set_next_question(now);
      operation.investigate();
    }
    if (now >= operation.deadline()) {
      GroupOperation::Holdup holdup = operation.holdup();
      operation.stop(std::make_exception_ptr(ErrorAbout(
          Code::kTimeout,
          fmt::format("{} was not complete after {:.6g} s{}. Find out what the missing ranks do, or give the operation "
                      "more time (timeout_ms, AIACC_TIMEOUT).",
                      operation.describe(), seconds(now - operation.began()), holdup.text),
          std::move(holdup.ranks))));
    } else if (!operation.reported_late && now >= after(operation.began(), late_after_)) {
      operation.reported_late = true;
      reporter_.late(fmt::format("{} has waited for {:.6g} s{}. It goes on waiting{}.", operation.describe(),
                                 seconds(now - operation.began()), operation.holdup().text,
                                 operation.deadline() == kNever
                                     ? std::string(" without a limit")
                                     : fmt::format(" for {:.6g} s more", seconds(operation.deadline() - now))));
    }
  } catch (...) {
    operation.stop(std::current_exception());
  }
}

}  // namespace aiacc

#include "runtime/watch/progress_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error_about.h"
#include "runtime/group/group.h"
#include "runtime/group/waiting_call.h"

namespace aiacc {

ProgressWatch::ProgressWatch(Loop& loop, Duration late_after, Reporter& reporter)
    : loop_(loop), late_after_(late_after), reporter_(reporter) {}

ProgressWatch::~ProgressWatch() = default;

void ProgressWatch::arm_by(Instant when) noexcept {
  // The timer is only ever moved to an earlier time; if it fires too early, expired() finds nothing due and arms it again.
  if (when >= armed_for_) return;
  armed_for_ = when;
  loop_.arm(*this, when);
}

void ProgressWatch::add(GroupOperation& operation, OperationLine& line) noexcept {
  ++running_;
  operation.line = &line;
  operation.is_oldest = line.operations.empty();
  line.operations.push_back(operation);
  if (!line.linked()) lines_.push_back(line);
  if (operation.is_oldest) {
    operation.late_at = after(operation.began(), late_after_);
    operation.restart_questions(operation.began());
    look_by(next_look(operation));
  }
  schedule(operation);
}

void ProgressWatch::look_by(Instant when) noexcept {
  lines_at_ = std::min(lines_at_, when);
  arm_by(lines_at_);
}

void ProgressWatch::schedule(GroupOperation& operation) noexcept {
  if (operation.deadline() == kNever) return;
  operation.due = StallTimes::last_look(operation.began(), operation.deadline());
  schedule_.add(operation);
  if (&schedule_.top() == &operation) arm_by(operation.due);
}

void ProgressWatch::remove(GroupOperation& operation) noexcept {
  --running_;
  static_cast<ListNode<GroupOperation>&>(operation).unlink();
  operation.leave_heap();
  // The next of its line has its first look soon, however rarely this one was asked about in the end.
  OperationLine& line = *operation.line;
  const bool next_waiting = operation.was_waiting() && --line.upgraded == 0 && !line.waiting.empty();
  if (next_waiting || (operation.was_asked_about && !line.operations.empty())) {
    look_by(after(loop_.now(), StallTimes::kFirstLook));
  }
}

void ProgressWatch::watch_first(const WaitingCall& call, OperationLine& line) noexcept {
  if (!line.linked()) lines_.push_back(line);
  if (line.upgraded > 0) return;
  line.watched = call.sequence();
  line.waiting_look = after(call.began(), StallTimes::kFirstLook);
  look_by(std::min(line.waiting_look, StallTimes::last_look(call.began(), call.deadline())));
}

void ProgressWatch::take_over(GroupOperation& operation, OperationLine& line) noexcept {
  operation.line = &line;
  ++line.upgraded;
  GroupOperation* next = nullptr;
  line.operations.for_each([&](GroupOperation& other) {
    if (next == nullptr && other.sequence() > operation.sequence()) next = &other;
  });
  operation.is_oldest = line.operations.empty() || next == &line.operations.front();
  next != nullptr ? line.operations.insert_before(*next, operation) : line.operations.push_back(operation);
  operation.late_at = after(operation.began(), late_after_);
  operation.restart_questions(operation.began());
  look_by(next_look(operation));
  schedule(operation);
}

void ProgressWatch::expired() noexcept {
  const Instant now = loop_.now();
  armed_for_ = kNever;
  if (idle()) {
    lines_at_ = kNever;
    return;
  }
  meet_deadlines(now);
  if (now >= lines_at_) lines_at_ = look_at_lines(now);
  arm_by(std::min(lines_at_, schedule_.empty() ? kNever : schedule_.top().due));
}

// --- the oldest of each line --------------------------------------------------------------------------------------------

Instant ProgressWatch::next_look(const GroupOperation& oldest) const noexcept {
  return std::min({oldest.next_question(), oldest.next_glance, oldest.reported_late ? kNever : oldest.late_at});
}

Instant ProgressWatch::look_at_lines(Instant now) noexcept {
  Instant next = kNever;
  lines_.for_each([&](OperationLine& line) {
    if (line.operations.empty() && line.waiting.empty()) return line.unlink();
    next = std::min(next, look_at_waiting(line, now));
    if (line.operations.empty()) return;
    GroupOperation& oldest = line.operations.front();
    if (!std::exchange(oldest.is_oldest, true)) {
      // It has become the oldest: until now it may have waited for earlier operations only.
      oldest.restart_questions(now);
      oldest.late_at = std::max(after(oldest.began(), late_after_), oldest.next_question());
    } else {
      look_at_oldest(oldest, now);
    }
    const Instant look = next_look(oldest);
    if (look > now) next = std::min(next, look);  // otherwise it is past its deadline and ends soon
  });
  return next;
}

// The oldest becomes an operation when it has been the oldest from one look to the next, and when its last look is due. When it is
// its turn to be looked at next.
Instant ProgressWatch::look_at_waiting(OperationLine& line, Instant now) noexcept {
  if (line.waiting.empty() || line.upgraded > 0) return kNever;
  WaitingCall& oldest = line.waiting.front();
  if (std::exchange(line.watched, oldest.sequence()) != oldest.sequence()) {
    line.waiting_look = after(now, StallTimes::kFirstLook);
  }
  const Instant look = std::min(line.waiting_look, StallTimes::last_look(oldest.began(), oldest.deadline()));
  if (now < look) return look;
  try {
    oldest.become_operation();
  } catch (const std::bad_alloc&) {
    return after(now, StallTimes::kFirstLook);
  }
  return kNever;
}

void ProgressWatch::look_at_oldest(GroupOperation& operation, Instant now) noexcept {
  if (operation.group().aborted()) return;  // it ends soon
  try {
    if (now >= operation.next_question() && now < operation.deadline()) {
      operation.was_asked_about = true;
      operation.set_next_question(now);
      operation.group().investigate(operation);
      glance_later(operation, now);
    } else if (now >= operation.next_glance) {
      operation.group().look_for_leavers(operation);
      glance_later(operation, now);
    }
    if (!operation.reported_late && now >= operation.late_at && now < operation.deadline()) {
      operation.reported_late = true;
      reporter_.late(fmt::format("{} has waited for {:.6g} s{}. It goes on waiting{}.", operation.describe(),
                                 seconds(now - operation.began()), operation.group().stragglers(operation).text,
                                 operation.deadline() == kNever
                                     ? std::string(" without a limit")
                                     : fmt::format(" for {:.6g} s more", seconds(operation.deadline() - now))));
    }
  } catch (...) {
    operation.group().abort(std::current_exception());
  }
}

// A member of this host that leaves tells nobody: what it says in shared memory is looked at more often than others are asked.
void ProgressWatch::glance_later(GroupOperation& operation, Instant now) noexcept {
  constexpr Duration kGlance = std::chrono::seconds(1);
  operation.next_glance = operation.group().shares_host() ? after(now, kGlance) : kNever;
}

void ProgressWatch::report_cycle(const GroupOperation& operation) noexcept {
  try {
    reporter_.late(
        fmt::format("{} has waited for {:.6g} s, and {}. They wait until another thread of one of them sends.",
                    operation.describe(), seconds(loop_.now() - operation.began()), operation.cycle.text));
  } catch (const std::bad_alloc&) {  // the error at the deadline says the same
  }
}

// --- deadlines ------------------------------------------------------------------------------------------------------------

// Each operation is handled here at most twice: for the last diagnosis and at its deadline. The first operation that reaches
// its deadline ends its group, and with it the group's other operations.
void ProgressWatch::meet_deadlines(Instant now) noexcept {
  while (!schedule_.empty() && schedule_.top().due <= now) {
    GroupOperation& operation = schedule_.top();
    operation.leave_heap();
    if (operation.group().aborted()) continue;
    if (now >= operation.deadline()) {
      time_out(operation, now);
      continue;
    }
    operation.due = operation.deadline();
    schedule_.add(operation);
    ask_a_last_time(operation, now);
  }
}

void ProgressWatch::ask_a_last_time(GroupOperation& operation, Instant now) noexcept {
  OperationLine& line = *operation.line;
  if (line.last_question != Instant{} && now < after(line.last_question, StallTimes::kFirstLook)) return;
  line.last_question = now;
  operation.set_next_question(now);
  operation.group().investigate(operation);
}

void ProgressWatch::time_out(GroupOperation& operation, Instant now) noexcept {
  try {
    GroupOperation::Stragglers stragglers = operation.group().stragglers(operation);
    operation.group().abort(std::make_exception_ptr(ErrorAbout(
        Code::kTimeout,
        fmt::format("{} was not complete after {:.6g} s{}. Find out what the missing ranks do, or give the operation "
                    "more time (timeout_ms, AIACC_TIMEOUT).",
                    operation.describe(), seconds(now - operation.began()), stragglers.text),
        std::move(stragglers.ranks))));
  } catch (...) {
    operation.group().abort(std::current_exception());
  }
}

}  // namespace aiacc

// The end of a job: its first cause, the escalating signals, and the closing line after all processes have ended.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "launcher/agent/process_tree.h"
#include "launcher/head/head.h"

namespace aiacc::launcher {

namespace {

constexpr Duration kLastLineLimit = std::chrono::milliseconds(500);  // for the closing line, also after a third Ctrl-C
constexpr Duration kFlushLimit = std::chrono::seconds(1);
constexpr Duration kAbandonAfter = std::chrono::seconds(5);  // SIGKILL was sent because the user asked for it

}  // namespace

// Only the first cause counts.
bool Head::begin_end(Cause cause) {
  if (result_.cause != Cause::kNone) return false;
  result_.cause = cause;
  result_.ranks_started = ranks_started_;
  result_.stopped_ranks = rules_.running();
  if (cause == Cause::kRank) {
    result_.failure = rules_.first_failure();
    result_.failed_host = host_of(result_.failure->rank);
  }
  rules_.stop_counting();
  for (Alarm* alarm : {&missing_, &awaited_, &timeout_, &too_few_, &slow_start_, &start_limit_, &start_failed_})
    alarm->disarm();
  if (growth_) growth_->stop_starting();
  return true;
}

void Head::end_by(const Escalation::Step& step, bool everyone) {
  if (!ranks_started_) {
    for (const auto& link : links_) link->close_channel();
    return;
  }
  if (!step.sentence.empty() && rules_.running() > 0) say(MessageId::kInterrupted, step.sentence);
  if (step.nothing()) return;
  wire::EndRanks order;
  order.signals.assign(step.signals.begin(), step.signals.end());
  order.everyone = everyone;
  if (step.kill_after != Duration::max()) {
    order.kill_after_ms = std::chrono::duration_cast<std::chrono::milliseconds>(step.kill_after).count();
  }
  to_all(order);
  if (step.kill_after == Duration::zero()) loop_.arm(abandon_, after(loop_.now(), kAbandonAfter));
}

void Head::end_job() { end_by(escalation_.end_job(), true); }

void Head::timed_out() {
  if (begin_end(Cause::kTimeout)) end_job();
}

Task<void> Head::handle_signals(Stop& stop) {
  for (;;) {
    const int number = co_await signals_.next(stop);
    co_await handle_signal(number, stop);
  }
}

void Head::interrupted(int number) {
  const bool first = !escalation_.ending();
  begin_end(Cause::kInterrupted);
  end_by(escalation_.user_signal(number, rules_.running()), !first && number == SIGINT);
  if (!rules_.all_exited()) return;
  flush_until_ = std::min(flush_until_, after(loop_.now(), kShortGrace));  // no rank is left that could be signalled
  arm_flush();
}

Task<void> Head::handle_signal(int number, Stop& stop) {
  switch (number) {
    case SIGINT:
    case SIGTERM:
    case SIGHUP: interrupted(number); break;
    case SIGTSTP: {
      co_await stop_all(stop);
      signals_.stop_self();
      break;
    }
    case SIGQUIT:
      // A rank may handle SIGQUIT and live on, so it is forwarded; without ranks it ends the job.
      if (!ranks_started_ || rules_.all_exited()) {
        interrupted(number);
        break;
      }
      [[fallthrough]];
    default: {
      wire::SignalRanks order;
      order.number = number;
      to_all(order);
    }
  }
}

// A host whose channel is blocked must not delay aiaccrun's own stop.
Task<void> Head::stop_all(Stop& stop) {
  wire::SignalRanks order;
  order.number = SIGSTOP;
  to_all(order);
  Stop patience(stop);
  Deadline deadline(loop_, after(loop_.now(), kFlushLimit), patience, "a host takes no orders");
  try {
    for (const auto& link : links_) co_await link->flushed(patience);
  } catch (const Error&) {
    stop.throw_if_requested();
  }
}

// The user does not want to wait: agents that cannot be reached end when their lease does.
void Head::abandon_hosts() {
  for (const auto& link : links_) link->abandon();
}

// All ranks have ended: output that is still unread waits for its reader until flush_until_.
void Head::arm_flush() {
  flush_until_ = std::min(flush_until_, after(loop_.now(), escalation_.flush_grace()));
  loop_.arm(flush_, flush_until_);
}

void Head::flush_expired() {
  wire::DropOutput message;
  to_all(message);
  out_.discard();
  err_.discard();
}

Task<void> Head::conclude(Stop& stop) {
  co_await over_.wait(stop);
  timeout_.disarm();
  missing_.disarm();
  awaited_.disarm();
  // A keeper ends what a dead agent left behind. If the keeper died too, aiaccrun has adopted these processes and ends
  // them.
  const bool all_done = std::all_of(links_.begin(), links_.end(), [](const auto& one) { return one->done(); });
  if (!all_done) co_await end_descendants(loop_, host_, kShortGrace, stop);
  rules_.stop_counting();
  arm_flush();
  co_await out_.drained(stop);
  closing_lines();
  Stop patience(stop);
  Deadline deadline(loop_, after(loop_.now(), std::max(escalation_.flush_grace(), kLastLineLimit)), patience,
                    "nobody reads stderr");
  try {
    co_await err_.drained(patience);
  } catch (const Error&) {
    stop.throw_if_requested();
  }
}

void Head::closing_lines() {
  result_.interrupted_by = escalation_.interrupted_by();
  result_.hosts = one_host() ? "host " + links_.front()->name() : fmt::format("{} hosts", links_.size());
  result_.timeout = settings_.timeout;
  result_.took = loop_.now() - started_;
  result_.dropped_bytes = out_.dropped_bytes() + err_.dropped_bytes();
  for (const auto& link : links_) {
    result_.dropped_bytes += link->dropped_bytes();
    if (link->unauthenticated() > 0) result_.unauthenticated.emplace_back(link->name(), link->unauthenticated());
  }
  if (!unusable_hosts_.empty()) result_.sentence += "; the job begins without it";
  const std::optional<ClosingLine> line = closing_line(result_);
  if (line) say(line->id, line->sentence);
  for (const std::string& more : evidence_) err_.put_own_line(more);
}

}  // namespace aiacc::launcher

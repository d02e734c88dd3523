// The end of a job: by its first cause, with signals that grow harder, until nothing lives and the last line is out.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "launcher/head.h"
#include "launcher/process_tree.h"

namespace aiacc::launcher {

namespace {

constexpr Duration kLastLineLimit = std::chrono::milliseconds(500);  // for the closing line, also after a third Ctrl-C
constexpr Duration kFlushLimit = std::chrono::seconds(1);
constexpr Duration kAbandonAfter = std::chrono::seconds(5);  // SIGKILL was sent because the user asked for it

}  // namespace

// The first cause is the one that counts.
bool Head::begin_end(Cause cause) {
  if (verdict_.cause != Cause::kNone) return false;
  verdict_.cause = cause;
  verdict_.ranks_started = ranks_started_;
  verdict_.stopped_ranks = rules_.running();
  if (cause == Cause::kRank) {
    verdict_.failure = rules_.first_failure();
    verdict_.failed_host = host_of(verdict_.failure->rank);
  }
  rules_.stop_counting();
  for (Alarm* alarm : {&missing_, &timeout_, &slow_start_, &start_limit_, &start_failed_}) alarm->disarm();
  return true;
}

void Head::end_by(const Escalation::Step& step, bool everyone) {
  if (!ranks_started_) {
    for (const auto& link : links_) link->hang_up();
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

// What a signal means that is to end the job.
void Head::interrupted(int number) {
  const bool first = !escalation_.ending();
  begin_end(Cause::kInterrupted);
  end_by(escalation_.user_signal(number, rules_.running()), !first && number == SIGINT);
  if (!rules_.all_exited()) return;
  flush_until_ = std::min(flush_until_, after(loop_.now(), kShortGrace));  // asked to end, with no rank left to ask
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
      // A rank may live on after it; where there is none, only the job is left to end.
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

// A host that takes nothing any more must not keep us from our own stop.
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

// The user wants to go: who cannot be reached ends with its lease.
void Head::abandon_hosts() {
  for (const auto& link : links_) link->abandon();
}

// All ranks have ended: what is still unread waits for its reader so long and no longer.
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
  // A keeper ends what an agent that died left behind. It is ours to end if the keeper died too.
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
  verdict_.interrupted_by = escalation_.interrupted_by();
  verdict_.hosts = one_host() ? "host " + links_.front()->name() : fmt::format("{} hosts", links_.size());
  verdict_.timeout = settings_.timeout;
  verdict_.took = loop_.now() - started_;
  verdict_.dropped_bytes = out_.dropped_bytes() + err_.dropped_bytes();
  for (const auto& link : links_) {
    verdict_.dropped_bytes += link->dropped_bytes();
    if (link->strangers() > 0) verdict_.strangers.emplace_back(link->name(), link->strangers());
  }
  const std::optional<ClosingLine> line = closing_line(verdict_);
  if (line) say(line->id, line->sentence);
  for (const std::string& more : evidence_) err_.put_own_line(more);
}

}  // namespace aiacc::launcher

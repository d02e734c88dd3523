#include "launcher/head.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/process_tree.h"

namespace aiacc::launcher {

namespace {

constexpr std::uint64_t kCredit = 1u << 20;  // a window that keeps a fast reader busy and is all that is ever queued
constexpr std::uint64_t kCreditStep = kCredit / 8;
constexpr Duration kLastLineLimit = std::chrono::milliseconds(500);  // for the closing line, also after a third Ctrl-C
constexpr Duration kKeeperLimit = std::chrono::seconds(10);

std::string ranks_text(int count) { return fmt::format("{} rank{}", count, count == 1 ? "" : "s"); }

}  // namespace

Head::Head(Loop& loop, io::Host& host, io::Signals& signals, io::Process& keeper, io::Stream& out, io::Stream& err,
           Settings settings)
    : loop_(loop),
      host_(host),
      signals_(signals),
      keeper_(keeper),
      settings_(std::move(settings)),
      to_agent_(loop, *keeper.in),
      out_(loop, out, settings_.tag_output, *this),
      err_(loop, err, settings_.tag_output, *this),
      rules_(settings_.ranks),
      escalation_(settings_.kill_grace),
      over_(loop) {}

void Head::say(MessageId id, const std::string& sentence) { err_.put_own_line(message_line(id, sentence)); }

Task<int> Head::run(wire::StartJob job, Stop& stop) {
  started_ = loop_.now();
  job.credit = kCredit;
  to_agent_.send(job);

  Scope scope(loop_, stop);
  scope.spawn(to_agent_.run(scope.stop()));
  scope.spawn(out_.run(scope.stop()));
  scope.spawn(err_.run(scope.stop()));
  scope.spawn(control(scope.stop()));
  scope.spawn(handle_signals(scope.stop()));
  bool finished = false;
  try {
    co_await conclude(scope.stop());
    finished = true;
  } catch (const Error&) {
    // A child failed: join() has its error.
  }
  scope.stop().request(std::make_exception_ptr(Error(Code::kAborted, "the job has ended")));
  try {
    co_await scope.join();
  } catch (const Error&) {
    if (!finished) throw;
  }
  co_return exit_code();
}

Task<void> Head::control(Stop& stop) {
  FrameReader from(*keeper_.out, wire::kLargestFrameBytes);
  try {
    for (;;) {
      auto frame = co_await from.next(stop);
      if (!frame) break;
      handle(*frame);
    }
  } catch (const Error& error) {
    if (stop.requested()) throw;
    if (begin_end(Cause::kLost)) cause_sentence_ = error.message();
  }
  channel_ended();
}

void Head::handle(const wire::Frame& frame) {
  switch (frame.type) {
    case wire::Started::kType: return started(frame.as<wire::Started>());
    case wire::NotStarted::kType: return not_started(frame.as<wire::NotStarted>());
    case wire::Output::kType: {
      auto output = frame.as<wire::Output>();
      Sink& sink = output.stream == 2 ? err_ : out_;
      return sink.put(output.rank, {std::move(output.bytes), output.continues, output.ends_line});
    }
    case wire::RankChanged::kType: return rank_changed(frame.as<wire::RankChanged>());
    case wire::RankStopped::kType: return rank_stopped(frame.as<wire::RankStopped>());
    case wire::Notice::kType: {
      const auto notice = frame.as<wire::Notice>();
      return say(static_cast<MessageId>(notice.message), notice.sentence);
    }
    case wire::KeeperLost::kType:
      if (begin_end(Cause::kLost)) cause_sentence_ = fmt::format("the keeper of host {} died", settings_.host_name);
      return;
    case wire::JobEnded::kType:
      dropped_by_agent_ = frame.as<wire::JobEnded>().dropped_bytes;
      job_ended_ = true;
      return;
    default: throw Error(Code::kProtocol, fmt::format("the agent sent a message of the unknown type {}", frame.type));
  }
}

void Head::started(const wire::Started& message) {
  started_ = loop_.now();
  if (settings_.timeout > Duration::zero()) loop_.arm(timeout_, after(started_, settings_.timeout));
  for (std::size_t rank = 0; settings_.describe_binding && rank < message.bindings.size(); ++rank) {
    err_.put_own_line(fmt::format("aiaccrun: rank {} on host {}: {}", rank, settings_.host_name,
                                  settings_.describe_binding(message.bindings[rank])));
  }
}

void Head::not_started(const wire::NotStarted& message) {
  job_ended_ = true;
  if (!begin_end(Cause::kNotStarted)) return;
  not_started_code_ = message.exit_code;
  not_started_id_ = static_cast<MessageId>(message.message);
  cause_sentence_ = message.sentence;
}

void Head::rank_changed(const wire::RankChanged& message) {
  if (message.rank < 0 || message.rank >= settings_.ranks) {
    throw Error(Code::kProtocol,
                fmt::format("the agent tells of rank {}, and there are {}", message.rank, settings_.ranks));
  }
  const Duration since_start(message.after_ns);
  std::optional<RankFailure> failure;
  switch (static_cast<RankPhase>(message.phase)) {
    case RankPhase::kSpawned: break;
    case RankPhase::kConnected: failure = rules_.connected(message.rank, since_start); break;
    case RankPhase::kInitialised: rules_.initialised(message.rank); break;
    case RankPhase::kFinalized: rules_.finalized(message.rank); break;
    case RankPhase::kExited:
      failure = rules_.exited(message.rank, {{message.code, message.signal}, message.by_memory, since_start});
      break;
  }
  if (failure && begin_end(Cause::kRank)) end_job();
  if (rules_.all_exited()) arm_flush();
}

void Head::rank_stopped(const wire::RankStopped& message) {
  if (escalation_.ending()) return;
  say(MessageId::kRankStopped,
      fmt::format("rank {} on host {} (process {}) was stopped by signal {} and does not run; "
                  "kill -CONT {} lets it go on",
                  message.rank, settings_.host_name, message.process, message.signal, message.process));
}

// The first cause is the one that counts.
bool Head::begin_end(Cause cause) {
  if (cause_ != Cause::kNone) return false;
  cause_ = cause;
  stopped_ranks_ = rules_.running();
  rules_.stop_counting();
  timeout_.disarm();
  return true;
}

void Head::end_by(const Escalation::Step& step, bool everyone) {
  if (!step.sentence.empty() && rules_.running() > 0) say(MessageId::kInterrupted, step.sentence);
  if (step.nothing()) return;
  wire::EndRanks order;
  order.signals.assign(step.signals.begin(), step.signals.end());
  order.everyone = everyone;
  if (step.kill_after != Duration::max()) {
    order.kill_after_ms = std::chrono::duration_cast<std::chrono::milliseconds>(step.kill_after).count();
  }
  to_agent_.send(order);
}

void Head::end_job() { end_by(escalation_.end_job(), true); }

void Head::timed_out() {
  if (begin_end(Cause::kTimeout)) end_job();
}

Task<void> Head::handle_signals(Stop& stop) {
  for (;;) {
    const int number = co_await signals_.next(stop);
    switch (number) {
      case SIGINT:
      case SIGTERM:
      case SIGHUP: {
        const bool first = !escalation_.ending();
        begin_end(Cause::kInterrupted);
        end_by(escalation_.user_signal(number, rules_.running()), !first && number == SIGINT);
        if (rules_.all_exited()) {
          flush_until_ =
              std::min(flush_until_, after(loop_.now(), kShortGrace));  // asked to end, with no rank left to ask
          arm_flush();
        }
        break;
      }
      case SIGTSTP: {
        wire::SignalRanks order;
        order.number = SIGSTOP;
        to_agent_.send(order);
        co_await to_agent_.flushed(stop);
        signals_.stop_self();
        break;
      }
      default: {
        wire::SignalRanks order;
        order.number = number;
        to_agent_.send(order);
      }
    }
  }
}

void Head::sink_took(Sink& sink, std::size_t bytes) {
  const bool is_err = &sink == &err_;
  std::uint64_t& owed = owed_[is_err];
  owed += bytes;
  if (owed < kCreditStep) return;
  wire::Credit message;
  message.stream = is_err ? 2 : 1;
  message.bytes = std::exchange(owed, 0);
  to_agent_.send(message);
}

void Head::sink_broke(Sink&, const Error& error) {
  const bool reader_left = error.code() == Code::kPeerFailed;
  if (!begin_end(reader_left ? Cause::kReaderLeft : Cause::kOutputFailed)) return;
  cause_sentence_ = error.message();
  end_job();
}

// All ranks have ended: what is still unread waits for its reader so long and no longer.
void Head::arm_flush() {
  flush_until_ = std::min(flush_until_, after(loop_.now(), escalation_.flush_grace()));
  loop_.arm(flush_, flush_until_);
}

void Head::flush_expired() {
  wire::DropOutput message;
  to_agent_.send(message);
  out_.discard();
  err_.discard();
}

void Head::channel_ended() {
  if (!job_ended_ && begin_end(Cause::kLost)) {
    cause_sentence_ =
        fmt::format("lost the agent of host {}: its connection ended before the job did", settings_.host_name);
  }
  over_.set();
}

Task<void> Head::conclude(Stop& stop) {
  co_await over_.wait(stop);
  timeout_.disarm();
  {
    // The keeper ends what an agent that died left behind. It is ours to end if the keeper died too.
    Stop patience(stop);
    Deadline deadline(loop_, after(loop_.now(), kKeeperLimit), patience, "the keeper does not end");
    try {
      co_await keeper_.wait(patience);
    } catch (const Error&) {
      stop.throw_if_requested();
    }
  }
  if (!job_ended_) co_await end_descendants(loop_, host_, kShortGrace, stop);
  rules_.stop_counting();
  arm_flush();
  co_await out_.drained(stop);
  closing_line();
  Stop patience(stop);
  Deadline deadline(loop_, after(loop_.now(), std::max(escalation_.flush_grace(), kLastLineLimit)), patience,
                    "nobody reads stderr");
  try {
    co_await err_.drained(patience);
  } catch (const Error&) {
    stop.throw_if_requested();
  }
}

void Head::closing_line() {
  std::string sentence;
  MessageId id = MessageId::kInternal;
  const double now = seconds(loop_.now() - started_);
  switch (cause_) {
    case Cause::kNone: break;
    case Cause::kReaderLeft: return;
    case Cause::kRank:
      id = rules_.first_failure()->id;
      sentence = closing_sentence(*rules_.first_failure(), settings_.host_name, stopped_ranks_);
      break;
    case Cause::kTimeout:
      id = MessageId::kTimeout;
      sentence = fmt::format("the job did not end within {:g} s (--timeout); {} stopped by aiaccrun after {:.1f} s",
                             seconds(settings_.timeout), ranks_text(stopped_ranks_), now);
      break;
    case Cause::kInterrupted:
      id = MessageId::kInterrupted;
      sentence = fmt::format("the job was ended by SIG{} after {:.1f} s; {} on host {} ended with it",
                             ::sigabbrev_np(escalation_.interrupted_by()), now, ranks_text(stopped_ranks_),
                             settings_.host_name);
      break;
    case Cause::kOutputFailed:
      id = MessageId::kOutputLost;
      sentence =
          fmt::format("{}; {} stopped by aiaccrun after {:.1f} s", cause_sentence_, ranks_text(stopped_ranks_), now);
      break;
    case Cause::kNotStarted:
      id = not_started_id_;
      sentence = cause_sentence_;
      break;
    case Cause::kLost:
      id = MessageId::kAgent;
      sentence = fmt::format("{}; {} stopped after {:.1f} s", cause_sentence_, ranks_text(stopped_ranks_), now);
      break;
  }
  const std::uint64_t dropped = dropped_by_agent_ + out_.dropped_bytes() + err_.dropped_bytes();
  if (dropped > 0) {
    if (sentence.empty()) {
      id = MessageId::kOutputLost;
      sentence = "all ranks have ended";
    }
    sentence += fmt::format("; {} bytes of output that nobody read were dropped", dropped);
  }
  if (!sentence.empty()) say(id, sentence);
}

int Head::exit_code() const {
  switch (cause_) {
    case Cause::kNone: return kExitOk;
    case Cause::kRank: return rules_.first_failure()->exit_code;
    case Cause::kTimeout: return kExitTimeout;
    case Cause::kInterrupted: return 128 + escalation_.interrupted_by();
    case Cause::kReaderLeft: return kExitReaderLeft;
    case Cause::kNotStarted: return not_started_code_;
    case Cause::kOutputFailed:
    case Cause::kLost: return kExitLauncher;
  }
  return kExitLauncher;
}

}  // namespace aiacc::launcher

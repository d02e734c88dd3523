#include "launcher/head.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/attendance.h"
#include "launcher/process_tree.h"

namespace aiacc::launcher {

namespace {

constexpr Duration kLastLineLimit = std::chrono::milliseconds(500);  // for the closing line, also after a third Ctrl-C
constexpr Duration kFlushLimit = std::chrono::seconds(1);
constexpr Duration kAbandonAfter = std::chrono::seconds(5);      // SIGKILL was sent because the user asked for it
constexpr Duration kQuietDoor = std::chrono::milliseconds(200);  // no rank says hello: those that wait may know of whom
constexpr std::uint64_t kCreditSteps = 8;                        // credit goes back in so many parts

std::vector<std::size_t> hosts_of_ranks(const std::vector<wire::StartJob>& jobs) {
  const std::vector<std::uint32_t>& hosts = jobs.front().hosts_of_ranks;
  return {hosts.begin(), hosts.end()};
}

std::vector<WorldFence::Host> hosts_of_fence(const Head::Settings& settings) {
  std::vector<WorldFence::Host> hosts;
  for (std::size_t i = 0; i < settings.hosts.size(); ++i) {
    WorldFence::Host& host = hosts.emplace_back();
    host.name = settings.hosts[i].name;
    for (const wire::StartRank& rank : settings.jobs[i].ranks) host.ranks.push_back(rank.rank);
  }
  return hosts;
}

}  // namespace

Head::Head(Loop& loop, io::Host& host, io::Signals& signals, io::Entropy& entropy, io::Stream& out, io::Stream& err,
           Settings settings)
    : loop_(loop),
      host_(host),
      signals_(signals),
      entropy_(entropy),
      settings_(std::move(settings)),
      hosts_of_ranks_(launcher::hosts_of_ranks(settings_.jobs)),
      owed_(settings_.hosts.size()),
      out_(loop, out, settings_.tag_output, *this),
      err_(loop, err, settings_.tag_output, *this),
      rules_(static_cast<int>(hosts_of_ranks_.size())),
      fence_(hosts_of_fence(settings_)),
      escalation_(settings_.kill_grace),
      over_(loop) {
  HostLink::Owner& owner = *this;
  for (const HostLink::Settings& one : settings_.hosts) {
    links_.push_back(std::make_unique<HostLink>(loop, host, entropy, one, owner));
  }
}

void Head::say(MessageId id, const std::string& sentence) { err_.put_own_line(message_line(id, sentence)); }

const std::string& Head::host_of(int rank) const {
  return links_[hosts_of_ranks_[static_cast<std::size_t>(rank)]]->name();
}

Task<int> Head::run(Stop& stop) {
  started_ = loop_.now();
  Scope scope(loop_, stop);
  scope.spawn(out_.run(scope.stop()));
  scope.spawn(err_.run(scope.stop()));
  scope.spawn(handle_signals(scope.stop()));
  arm_start();
  for (const auto& link : links_) scope.spawn(link->run(scope.stop()));
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
  if (verdict_.cause != Cause::kNone) same_machines_.clear();  // it ended while they were let go
  co_return exit_code(verdict_);
}

void Head::host_said(HostLink& link, const wire::Frame& frame) {
  switch (frame.type) {
    case wire::Found::kType: return found(link, frame.as<wire::Found>());
    case wire::Prepared::kType: return host_answered();
    case wire::Started::kType: return started(link, frame.as<wire::Started>());
    case wire::NotStarted::kType: return not_started(link, frame.as<wire::NotStarted>());
    case wire::Output::kType: return output(link, frame.as<wire::Output>());
    case wire::RankChanged::kType: return rank_changed(link, frame.as<wire::RankChanged>());
    case wire::RankStopped::kType: return rank_stopped(link, frame.as<wire::RankStopped>());
    case wire::HostReady::kType: return host_ready(link, frame.as<wire::HostReady>());
    case wire::EndsTold::kType:
      if (!asked_.empty()) asked_[static_cast<std::size_t>(link.index())] = false;
      return cause_is_known();
    case wire::LoseRank::kType: return lose_rank(link, frame.as<wire::LoseRank>());
    case wire::Notice::kType: {
      const auto notice = frame.as<wire::Notice>();
      return say(static_cast<MessageId>(notice.message), notice.sentence);
    }
    case wire::KeeperLost::kType:
      return lose_host(link, MessageId::kAgent, fmt::format("the keeper of host {} died", link.name()));
    default: throw Error(Code::kProtocol, fmt::format("the agent sent a message of the unknown type {}", frame.type));
  }
}

void Head::check_rank(const HostLink& link, int rank) const {
  const bool known = rank >= 0 && rank < static_cast<int>(hosts_of_ranks_.size());
  if (known && hosts_of_ranks_[static_cast<std::size_t>(rank)] == static_cast<std::size_t>(link.index())) return;
  throw Error(Code::kProtocol, fmt::format("the agent tells of rank {}, which is none of its own", rank));
}

void Head::output(const HostLink& link, wire::Output message) {
  check_rank(link, message.rank);
  Sink& sink = message.stream == 2 ? err_ : out_;
  sink.put(message.rank, {std::move(message.bytes), message.continues, message.ends_line});
}

void Head::rank_changed(const HostLink& link, const wire::RankChanged& message) {
  check_rank(link, message.rank);
  const Duration since_start(message.after_ns);
  std::optional<RankFailure> failure;
  switch (static_cast<RankPhase>(message.phase)) {
    case RankPhase::kSpawned: break;
    case RankPhase::kConnected:
      failure = rules_.connected(message.rank, since_start);
      loop_.arm(missing_, after(loop_.now(), kQuietDoor));
      break;
    case RankPhase::kInitialised: rules_.initialised(message.rank); break;
    case RankPhase::kFinalized: rules_.finalized(message.rank); break;
    case RankPhase::kExited:
      failure = rules_.exited(message.rank,
                              {{message.code, message.signal}, message.by_memory, since_start, message.lost_peer});
      break;
  }
  if (failure && begin_end(Cause::kRank)) end_job();
  if (rules_.undecided()) look_for_cause();
  if (rules_.all_exited()) arm_flush();
}

void Head::tell_who_is_missing() {
  std::vector<HostAttendance> hosts;
  for (const auto& link : links_) hosts.push_back({link->name(), {}, {}});
  for (std::size_t rank = 0; rank < hosts_of_ranks_.size(); ++rank) {
    HostAttendance& host = hosts[hosts_of_ranks_[rank]];
    const RankPhase phase = rules_.phase(static_cast<int>(rank));
    const bool came = phase == RankPhase::kConnected || phase == RankPhase::kInitialised;
    (came ? host.came : host.missing).push_back(static_cast<int>(rank));
  }
  wire::RanksMissing message;
  message.sentence = attendance_text(hosts);
  if (!message.sentence.empty()) to_all(message);
}

// A rank failed because it had lost another: every host is asked what ended there. One that does not answer is lost, at the
// latest with its lease, and that is the answer.
void Head::look_for_cause() {
  if (!asked_.empty()) return cause_is_known();
  asked_.resize(links_.size());
  for (const auto& link : links_) asked_[static_cast<std::size_t>(link->index())] = !link->gone() && !link->done();
  wire::AskEnds message;
  to_all(message);
  cause_is_known();
}

void Head::cause_is_known() {
  const bool awaited = std::find(asked_.begin(), asked_.end(), true) != asked_.end();
  if (awaited && !rules_.all_exited()) return;
  if (rules_.decide() && begin_end(Cause::kRank)) end_job();
}

void Head::rank_stopped(const HostLink& link, const wire::RankStopped& message) {
  if (escalation_.ending()) return;
  say(MessageId::kRankStopped,
      fmt::format("rank {} on host {} (process {}) was stopped by signal {} and does not run; "
                  "kill -CONT {} lets it go on",
                  message.rank, link.name(), message.process, message.signal, message.process));
}

void Head::host_ready(const HostLink& link, const wire::HostReady& message) {
  const std::optional<WorldFence::Outcome> outcome = fence_.ready(link.index(), message);
  if (!outcome) return;
  if (outcome->open) return to_all(*outcome->open);
  say(MessageId::kVersions, outcome->refuse->sentence);
  to_all(*outcome->refuse);
}

void Head::lose_rank(const HostLink& link, const wire::LoseRank& message) {
  check_rank(link, message.rank);
  to_all(message, &link);
}

// The other hosts' ranks learn of it at once; then the job ends.
void Head::lose_host(const HostLink& link, MessageId id, const std::string& sentence) {
  const bool first = begin_end(Cause::kLost);
  for (std::size_t rank = 0; rank < hosts_of_ranks_.size(); ++rank) {
    if (hosts_of_ranks_[rank] != static_cast<std::size_t>(link.index())) continue;
    const RankPhase phase = rules_.phase(static_cast<int>(rank));
    rules_.lost(static_cast<int>(rank));
    if (phase == RankPhase::kExited || phase == RankPhase::kFinalized) continue;
    wire::LoseRank message;
    message.rank = static_cast<std::int32_t>(rank);
    message.sentence = fmt::format("rank {} is lost: {}", rank, sentence);
    to_all(message, &link);
  }
  if (!first) return;
  verdict_.id = id;
  verdict_.sentence = sentence;
  end_by(escalation_.lost(), true);
}

void Head::host_gone(HostLink& link) {
  if (!link.up()) {
    if (!link.hung_up() || !link.attempt().refused.empty()) host_failed_to_start();
  } else if (!link.done() && (ranks_started_ || !link.hung_up())) {
    lose_host(link, link.local() ? MessageId::kAgent : MessageId::kHostLost,
              link.local() ? fmt::format("lost the agent of host {}: {}", link.name(), link.loss())
                           : fmt::format("host {} was lost: {}", link.name(), link.loss()));
  }
  if (!asked_.empty()) {
    asked_[static_cast<std::size_t>(link.index())] = false;
    cause_is_known();
  }
  if (std::all_of(links_.begin(), links_.end(), [](const auto& one) { return one->gone(); })) over_.set();
}

// The first cause is the one that counts.
bool Head::begin_end(Cause cause) {
  if (verdict_.cause != Cause::kNone) return false;
  verdict_.cause = cause;
  verdict_.stopped_ranks = ranks_started_ ? rules_.running() : 0;
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

Task<void> Head::handle_signal(int number, Stop& stop) {
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
      co_await stop_all(stop);
      signals_.stop_self();
      break;
    }
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

void Head::sink_took(Sink& sink, int rank, std::size_t bytes) {
  const bool is_err = &sink == &err_;
  const std::size_t host = hosts_of_ranks_[static_cast<std::size_t>(rank)];
  std::uint64_t& owed = owed_[host].bytes[is_err];
  owed += bytes;
  if (owed < credit_ / kCreditSteps) return;
  wire::Credit message;
  message.stream = is_err ? 2 : 1;
  message.bytes = std::exchange(owed, 0);
  links_[host]->send(message);
}

void Head::sink_broke(Sink&, const Error& error) {
  const bool reader_left = error.code() == Code::kPeerFailed;
  if (!begin_end(reader_left ? Cause::kReaderLeft : Cause::kOutputFailed)) return;
  verdict_.sentence = error.message();
  end_job();
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

#include "launcher/head/head.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/wire/arrivals_text.h"

namespace aiacc::launcher {

namespace {

// After no rank has said hello for this long, waiting ranks are told which are missing.
constexpr Duration kHelloSilence = std::chrono::milliseconds(200);
// After ranks have waited for others for this long, the user is told, and again after each pause.
constexpr Duration kFirstWord = std::chrono::seconds(20);
constexpr Duration kNextWord = std::chrono::seconds(60);
constexpr std::uint64_t kCreditSteps = 8;  // credit is returned in this many parts

std::vector<std::size_t> hosts_of_ranks(const std::vector<wire::StartJob>& jobs) {
  const std::vector<std::uint32_t>& hosts = jobs.front().hosts_of_ranks;
  return {hosts.begin(), hosts.end()};
}

std::vector<StartBarrier::Host> hosts_of_start_barrier(const Head::Settings& settings) {
  std::vector<StartBarrier::Host> hosts;
  for (std::size_t i = 0; i < settings.hosts.size(); ++i) {
    StartBarrier::Host& host = hosts.emplace_back();
    host.name = settings.hosts[i].name;
    for (const wire::StartRank& rank : settings.jobs[i].ranks) host.ranks.push_back(rank.rank);
  }
  return hosts;
}

// With how many ranks the job still has a state that it can go on from.
int least_of(const Head::Settings& settings, std::size_t ranks) {
  if (settings.growth) return 1;
  return settings.min_ranks > 0 ? settings.min_ranks : static_cast<int>(ranks);
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
      bindings_told_(settings_.hosts.size()),
      out_(loop, out, settings_.tag_output, *this),
      err_(loop, err, settings_.tag_output, *this),
      rules_(static_cast<int>(hosts_of_ranks_.size()), least_of(settings_, hosts_of_ranks_.size()),
             settings_.max_ranks > 0),
      start_barrier_(hosts_of_start_barrier(settings_), settings_.max_ranks > 0,
                     settings_.growth ? settings_.min_ranks : 1),
      escalation_(settings_.kill_grace),
      over_(loop) {
  InputSource::Owner& reader = *this;
  if (settings_.in != nullptr) input_.emplace(loop, *settings_.in, reader);
  HostLink::Owner& owner = *this;
  for (const HostLink::Settings& one : settings_.hosts) {
    links_.push_back(std::make_unique<HostLink>(loop, host, entropy, one, owner));
  }
  Growth::Owner& grown = *this;
  if (settings_.growth) growth_.emplace(loop, host, *settings_.growth, grown);
}

void Head::say(MessageId id, const std::string& sentence) {
  if (!settings_.quiet || !is_remark(id)) err_.put_own_line(message_line(id, sentence));
}

const std::string& Head::host_of(int rank) const {
  return links_[hosts_of_ranks_[static_cast<std::size_t>(rank)]]->name();
}

Task<int> Head::run(Stop& stop) {
  started_ = loop_.now();
  Scope scope(loop_, stop);
  scope_ = &scope;
  scope.spawn(out_.run(scope.stop()));
  scope.spawn(err_.run(scope.stop()));
  if (input_) scope.spawn(input_->run(scope.stop()));
  scope.spawn(handle_signals(scope.stop()));
  arm_start();
  for (const auto& link : links_) scope.spawn(link->run(scope.stop()));
  std::exception_ptr failure;
  try {
    co_await conclude(scope.stop());
  } catch (const Error&) {
    failure = std::current_exception();
  }
  const Error ended(Code::kAborted, "the job has ended");
  scope.stop().request(failure ? failure : std::make_exception_ptr(ended));
  try {
    co_await scope.join();
  } catch (const Error&) {
    // It ended with `failure`, or because the job did.
  }
  if (failure) std::rethrow_exception(failure);
  if (result_.cause != Cause::kNone) same_machines_.clear();  // the job ended while the agents were dismissed
  if (escalation_.interrupted_by() != 0) unusable_hosts_.clear();
  co_return exit_code(result_);
}

void Head::frame_received(HostLink& link, const wire::Frame& frame) {
  switch (frame.type) {
    case wire::SameHostFound::kType: return same_host_found(link, frame.as<wire::SameHostFound>());
    case wire::Prepared::kType:
      if (growth_ && growth_->is_starting(link)) return growth_->prepared(link);
      return host_answered();
    case wire::Started::kType: return started(link, frame.as<wire::Started>());
    case wire::NotStarted::kType: return not_started(link, frame.as<wire::NotStarted>());
    case wire::Output::kType: return output(link, frame.as<wire::Output>());
    case wire::InputCredit::kType: return input_of(link).add_credit(frame.as<wire::InputCredit>().bytes);
    case wire::InputClosed::kType: return input_of(link).close();
    case wire::RankChanged::kType: return rank_changed(link, frame.as<wire::RankChanged>());
    case wire::RankStopped::kType: return rank_stopped(link, frame.as<wire::RankStopped>());
    case wire::HostReady::kType: return host_ready(link, frame.as<wire::HostReady>());
    case wire::ExitsReported::kType:
      if (static_cast<std::size_t>(link.index()) < exits_awaited_.size()) {
        exits_awaited_[static_cast<std::size_t>(link.index())] = false;
      }
      return cause_is_known();
    case wire::LoseRank::kType: return lose_rank(link, frame.as<wire::LoseRank>());
    case wire::Notice::kType: {
      const auto notice = frame.as<wire::Notice>();
      const auto id = static_cast<MessageId>(notice.message);
      if (!ranks_started_) return remember(link, id, notice.sentence);
      return say(id, notice.sentence);
    }
    case wire::KeeperLost::kType:
      return lose_host(link, MessageId::kAgent, fmt::format("the keeper of host {} died", link.name()));
    default: throw Error(Code::kProtocol, fmt::format("the agent sent a message of the unknown type {}", frame.type));
  }
}

void Head::check_rank(const HostLink& link, int rank) const {
  const bool known = rank >= 0 && rank < static_cast<int>(hosts_of_ranks_.size());
  if (known && hosts_of_ranks_[static_cast<std::size_t>(rank)] == static_cast<std::size_t>(link.index())) return;
  throw Error(Code::kProtocol, fmt::format("the agent reports rank {}, which is not on its host", rank));
}

void Head::output(const HostLink& link, wire::Output message) {
  check_rank(link, message.rank);
  Sink& sink = message.stream == 2 ? err_ : out_;
  sink.put(message.rank, {std::move(message.bytes), message.continues, message.ends_line});
}

void Head::rank_changed(HostLink& link, const wire::RankChanged& message) {
  check_rank(link, message.rank);
  const Duration since_start(message.after_ns);
  std::optional<RankFailure> failure;
  switch (static_cast<RankPhase>(message.phase)) {
    case RankPhase::kSpawned: break;
    case RankPhase::kConnected:
      failure = rules_.connected(message.rank, since_start);
      if (growth_ && !start_barrier_.awaits(message.rank) && !rules_.left_out(message.rank)) {
        start_barrier_.admit(link.index(), message.rank);
        growth_->rank_connected(message.rank);
      }
      loop_.arm(missing_, after(loop_.now(), kHelloSilence));
      if (!awaited_.armed()) await_others();
      break;
    case RankPhase::kInitialised:
      rules_.initialised(message.rank, elastic() ? start_barrier_.worlds() : 0);
      if (awaited_.armed() && !somebody_waits()) awaited_.disarm();
      if (growth_) growth_->rank_initialised(message.rank);
      break;
    case RankPhase::kFinalized: rules_.finalized(message.rank); break;
    case RankPhase::kExited:
      failure = rules_.exited(
          message.rank,
          {{message.code, message.signal}, message.by_memory, since_start, message.lost_peer, message.lost_path});
      break;
  }
  if (failure && resets_are_used_up()) {
    say(MessageId::kRankLost, fmt::format("the ranks have met {} time{} after the first (--reset-limit): the job ends",
                                          settings_.reset_limit, settings_.reset_limit == 1 ? "" : "s"));
  }
  if (failure && begin_end(Cause::kRank)) end_job();
  if (elastic() && static_cast<RankPhase>(message.phase) == RankPhase::kExited) {
    settle(link, message);
  }
  tell_of_survived("");
  watch_size();
  if (rules_.undecided()) look_for_cause();
  if (rules_.all_exited()) arm_flush();
}

bool Head::resets_are_used_up() const noexcept {
  return settings_.reset_limit >= 0 && start_barrier_.worlds() > settings_.reset_limit;
}

void Head::tell_of_survived(const std::string& what_follows) {
  const std::optional<RankFailure> failure = rules_.take_survived();
  if (!failure) return;
  say(MessageId::kRankLost,
      fmt::format("rank {} on host {} {} after {:.1f} s; {}", failure->rank, host_of(failure->rank), failure->what,
                  seconds(failure->after), what_follows.empty() ? this->what_follows() : what_follows));
}

std::string Head::what_follows() const {
  const int left = rules_.not_failed();
  const std::string ranks = fmt::format("{} rank{}", left, left == 1 ? "" : "s");
  if (one_is_done_ && rules_.all_exited())
    return fmt::format("{} ended well (--min-np {})", ranks, settings_.min_ranks);
  if (left >= settings_.min_ranks)
    return fmt::format("the job goes on with {} (--min-np {})", ranks, settings_.min_ranks);
  return fmt::format("{} wait{} until there are {} (--min-np)", ranks, left == 1 ? "s" : "", settings_.min_ranks);
}

// What becomes of the place of a rank that has exited. Who was started in the place of another and ends before it was in a
// world, well or not, is not replaced: it would end again. When a rank has finished, the others finish too, and a newcomer would wait
// for a world that does not come.
void Head::settle(HostLink& link, const wire::RankChanged& exit) {
  const int rank = exit.rank;
  const bool finished = exit.code == 0 && exit.signal == 0 && !rules_.left_early(rank);
  const bool dismissed = rules_.dismissed(rank);
  start_barrier_.exited(rank);
  if (finished && !dismissed && result_.cause == Cause::kNone && !std::exchange(one_is_done_, true)) {
    wire::RefuseWorld refusal;
    refusal.code = static_cast<std::int32_t>(Code::kPeerFailed);
    refusal.sentence =
        fmt::format("rank {} on host {} exited with status 0 and takes no part any more", rank, link.name());
    if (growth_) growth_->finish();
    to_all(refusal);
  }
  wire::SettleRank order;
  order.rank = rank;
  order.replace =
      !growth_ && rules_.survives() && result_.cause == Cause::kNone && !one_is_done_ && !rules_.joining(rank);
  link.send(order);
  if (growth_) growth_->rank_ended(rank, !finished && !dismissed && exit.lost_peer < 0);
  if (!order.replace) return leave_out(rank);
  rules_.replaced(rank);
  start_barrier_.replaced(rank);
  tell_of_survived(fmt::format("a new rank is started in its place (--max-np {})", settings_.max_ranks));
}

// A rank that has finished stays one that the others may wait for in vain.
void Head::leave_out(int rank) {
  if (!one_is_done_) rules_.leave_out(rank);
  const auto outcome = start_barrier_.leave_out(rank);
  if (outcome) open(*outcome);
}

void Head::await_others() {
  waiting_since_ = loop_.now();
  loop_.arm(awaited_, after(waiting_since_, kFirstWord));
}

bool Head::somebody_waits() const {
  for (int rank = 0; rank < static_cast<int>(hosts_of_ranks_.size()); ++rank) {
    if (rules_.phase(rank) == RankPhase::kConnected) return true;
  }
  return false;
}

std::string Head::who_is_missing() const {
  std::vector<wire::RankArrival> ranks;
  for (std::size_t rank = 0; rank < hosts_of_ranks_.size(); ++rank) {
    const RankPhase phase = rules_.phase(static_cast<int>(rank));
    const bool came = phase == RankPhase::kConnected || phase == RankPhase::kInitialised ||
                      !start_barrier_.awaits(static_cast<int>(rank));
    ranks.push_back({came ? wire::RankArrival::State::kHere : wire::RankArrival::State::kAway,
                     "on host " + links_[hosts_of_ranks_[rank]]->name()});
  }
  const bool all = std::all_of(ranks.begin(), ranks.end(),
                               [](const auto& rank) { return rank.state == wire::RankArrival::State::kHere; });
  return all ? "" : wire::arrivals_text(ranks, "called aiacc_init");
}

void Head::tell_who_is_missing() {
  wire::RanksMissing message;
  message.sentence = who_is_missing();
  if (!message.sentence.empty()) to_all(message);
}

// Until the ranks' own limit of minutes nobody would know what the job waits for.
void Head::tell_user_who_is_missing() {
  const std::string missing = somebody_waits() && !one_is_done_ ? who_is_missing() : "";
  if (missing.empty()) return;
  say(MessageId::kWaiting,
      fmt::format("ranks have waited in aiacc_init for {:.0f} s: {}", seconds(loop_.now() - waiting_since_), missing));
  loop_.arm(awaited_, after(loop_.now(), kNextWord));
}

// A rank failed because it had lost another one. Every host is asked which ranks exited there. A host that does not
// answer is lost, at the latest when its lease ends; that counts as its answer.
void Head::look_for_cause() {
  if (!exits_awaited_.empty()) return cause_is_known();
  exits_awaited_.resize(links_.size());
  for (const auto& link : links_)
    exits_awaited_[static_cast<std::size_t>(link->index())] = link->up() && !link->gone() && !link->done();
  wire::QueryExits message;
  to_all(message);
  cause_is_known();
}

void Head::cause_is_known() {
  const bool awaited = std::find(exits_awaited_.begin(), exits_awaited_.end(), true) != exits_awaited_.end();
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
  const std::optional<StartBarrier::Outcome> outcome = start_barrier_.ready(link.index(), message);
  if (outcome) open(*outcome);
}

void Head::open(const StartBarrier::Outcome& outcome) {
  if (one_is_done_) return;        // who waits was refused
  if (rules_.undecided()) return;  // the job ends
  if (outcome.refuse) {
    say(MessageId::kVersions, outcome.refuse->sentence);
    return to_all(*outcome.refuse);
  }
  if (resets_are_used_up()) rules_.survive_no_more();
  wire::OpenWorld world = *outcome.open;
  for (const auto& link : links_) {
    world.answers = outcome.answers[static_cast<std::size_t>(link->index())];
    link->send(world);
  }
}

void Head::lose_rank(const HostLink& link, const wire::LoseRank& message) {
  check_rank(link, message.rank);
  to_all(message, &link);
}

// Tells the ranks of the other hosts at once, then ends the job, unless it goes on without them.
void Head::lose_host(const HostLink& link, MessageId id, const std::string& sentence) {
  if (survive_loss(link, sentence)) return;
  const bool first = begin_end(Cause::kLost);
  std::vector<int> ranks;
  for (const int rank : ranks_of(link)) {
    const RankPhase phase = rules_.phase(rank);
    rules_.lost(rank);
    if (phase != RankPhase::kExited && phase != RankPhase::kFinalized) ranks.push_back(rank);
  }
  tell_of_lost(link, ranks, sentence);
  if (!first) return;
  result_.id = id;
  result_.sentence = sentence;
  end_by(escalation_.lost(), true);
}

std::vector<int> Head::ranks_of(const HostLink& link) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < hosts_of_ranks_.size(); ++rank) {
    if (hosts_of_ranks_[rank] == static_cast<std::size_t>(link.index())) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void Head::tell_of_lost(const HostLink& link, const std::vector<int>& ranks, const std::string& sentence) {
  for (const int rank : ranks) {
    wire::LoseRank message;
    message.rank = rank;
    message.sentence = fmt::format("rank {} is lost: {}", rank, sentence);
    to_all(message, &link);
  }
}

// With --min-np. This host cannot be lost: its keeper and agent are what ends the ranks here.
bool Head::survive_loss(const HostLink& link, const std::string& sentence) {
  if (settings_.min_ranks == 0 || link.local() || !ranks_started_) return false;
  std::vector<int> ranks = ranks_of(link);
  std::erase_if(ranks, [this](int rank) { return rules_.phase(rank) == RankPhase::kExited; });
  std::vector<int> in_job = ranks;
  std::erase_if(in_job, [this](int rank) { return rules_.phase(rank) == RankPhase::kFinalized; });
  if (!rules_.survive_losing(ranks)) return false;
  tell_of_lost(link, in_job, sentence);
  if (elastic()) {
    for (const int rank : ranks) drop_rank(rank);
  }
  if (ranks.empty()) return true;
  say(MessageId::kRankLost, fmt::format("{}; {}", sentence, what_follows()));
  watch_size();
  if (rules_.all_exited()) arm_flush();
  return true;
}

// There will be no report of its exit.
void Head::drop_rank(int rank) {
  if (growth_) growth_->rank_ended(rank, true);
  leave_out(rank);
}

void Head::host_gone(HostLink& link) {
  const bool starting = growth_ && growth_->is_starting(link);
  if (starting && (!link.up() || link.done() || link.channel_closed())) {
    for (const int rank : ranks_of(link)) {
      rules_.lost(rank);
      drop_rank(rank);
    }
    if (rules_.all_exited()) arm_flush();
  } else if (!link.up()) {
    if (!link.channel_closed() || !link.attempt().refused.empty()) host_failed_to_start();
  } else if (!link.done() && (ranks_started_ || !link.channel_closed())) {
    lose_host(link, link.local() ? MessageId::kAgent : MessageId::kHostLost,
              link.local() ? fmt::format("lost the agent of host {}: {}", link.name(), link.loss())
                           : fmt::format("host {} was lost: {}", link.name(), link.loss()));
  }
  if (growth_) growth_->host_gone(link);
  if (static_cast<std::size_t>(link.index()) < exits_awaited_.size()) {
    exits_awaited_[static_cast<std::size_t>(link.index())] = false;
    cause_is_known();
  }
  if (std::all_of(links_.begin(), links_.end(), [](const auto& one) { return one->gone(); })) over_.set();
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
  result_.sentence = error.message();
  end_job();
}

InputSource& Head::input_of(const HostLink& link) {
  if (input_ &&
      hosts_of_ranks_[static_cast<std::size_t>(settings_.input_rank)] == static_cast<std::size_t>(link.index())) {
    return *input_;
  }
  throw Error(Code::kProtocol, "the agent sent a message about standard input, but none of its ranks reads it");
}

void Head::input_read(std::string bytes) {
  wire::Input message;
  message.bytes = std::move(bytes);
  links_[hosts_of_ranks_[static_cast<std::size_t>(settings_.input_rank)]]->send(message);
}

void Head::input_failed(const Error& error) {
  say(MessageId::kStdin, fmt::format("{}; rank {} reads the end of its input", error.message(), settings_.input_rank));
}

}  // namespace aiacc::launcher

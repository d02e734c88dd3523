// The start of a job: waiting until every agent is up, then the message that makes each agent start its ranks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/printable.h"
#include "launcher/head/head.h"

namespace aiacc::launcher {

namespace {

constexpr std::uint64_t kCredit = 1u << 20;  // enough to keep a fast reader busy; also the most that is ever queued
constexpr std::uint64_t kLeastCredit = kCredit / 8;
constexpr Duration kSlowStart = std::chrono::seconds(5);    // then the user is told which hosts aiaccrun waits for
constexpr Duration kOthersLimit = std::chrono::seconds(3);  // other hosts may fail in the same way a little later

}  // namespace

std::vector<std::string> Head::awaited_hosts() const {
  std::vector<std::string> names;
  for (const auto& link : links_) {
    if (!link->up() && !link->gone()) names.push_back(link->name());
  }
  return names;
}

void Head::host_up(HostLink& link) {
  start_barrier_.set_addresses(link.index(), link.agent().addresses);
  if (result_.cause != Cause::kNone) return link.close_channel();
  if (growth_ && growth_->is_starting(link)) return growth_->host_up(link);
  const bool all = std::all_of(links_.begin(), links_.end(), [](const auto& one) { return one->up() && !one->gone(); });
  if (all) {
    all_up();
  } else if (start_failed_.armed() && awaited_hosts().empty()) {
    give_up_start();
  }
}

// Agents that describe their machine in the same way look for each other: the later host of a pair connects to the
// earlier one. Hosts whose descriptions differ, as nearly all do, cost nothing.
void Head::all_up() {
  if (one_host() || settings_.separate_hosts) return send_jobs();
  std::vector<SameHostDetection::Agent> agents;
  for (const auto& link : links_) {
    const wire::AgentUp& agent = link->agent();
    agents.push_back({agent.machine, agent.same_host_socket, agent.token});
  }
  same_host_detection_.emplace(std::move(agents));
  if (same_host_detection_->complete()) return send_jobs();
  for (const auto& link : links_) {
    wire::FindSameHost message;
    message.same_host_sockets = same_host_detection_->candidates(link->index());
    if (!message.same_host_sockets.empty()) link->send(message);
  }
}

void Head::same_host_found(const HostLink& link, const wire::SameHostFound& message) {
  if (!same_host_detection_) throw Error(Code::kProtocol, "the agent answered a search that was not requested");
  same_host_detection_->found(link.index(), message.tokens);
  if (result_.cause != Cause::kNone || !same_host_detection_->complete()) return;
  same_machines_ = same_host_detection_->same();
  if (same_machines_.empty()) return send_jobs();
  for (Alarm* alarm : {&slow_start_, &start_limit_, &start_failed_}) alarm->disarm();
  for (const auto& other : links_) other->close_channel();
}

void Head::send_jobs() {
  for (Alarm* alarm : {&slow_start_, &start_limit_, &start_failed_}) alarm->disarm();
  jobs_sent_ = true;
  const HostLink& first = *links_[hosts_of_ranks_.front()];
  std::string master = "127.0.0.1";
  if (!one_host()) master = first.agent().addresses.empty() ? first.name() : first.agent().addresses.front();

  std::uint64_t id = 0;
  entropy_.fill(std::as_writable_bytes(std::span(&id, 1)));
  if (!one_host() || growth_) secret_ = wire::Secret::fresh(entropy_);
  credit_ = std::max(kCredit / links_.size(), kLeastCredit);
  shared_.credit = credit_;
  shared_.job = id;
  shared_.elastic = elastic();
  shared_.master_address = master;
  shared_.master_port = first.agent().master_port;
  for (const auto& link : links_) {
    wire::StartJob& job = settings_.jobs[static_cast<std::size_t>(link->index())];
    job.hosts_of_ranks.clear();
    complete(job);
    if (input_) job.input_rank = settings_.input_rank;
    link->send(job);
  }
  if (growth_) {
    scope_->spawn(growth_->run(scope_->stop()));
  } else {
    secret_ = {};  // whoever reads this process' memory finds none
  }
  settings_.jobs.clear();
}

// Other hosts may be about to fail for the same reason: one report names all of them.
void Head::host_failed_to_start() {
  if (result_.cause != Cause::kNone) return;
  if (awaited_hosts().empty()) return give_up_start();
  if (start_failed_.armed()) return;
  loop_.arm(start_failed_, after(loop_.now(), kOthersLimit));
}

void Head::give_up_start() {
  start_failed_.disarm();
  if (!begin_end(Cause::kNotStarted)) return;
  std::vector<StartAttempt> failed;
  for (const auto& link : links_) {
    if (!link->gone() || link->up()) continue;
    failed.push_back(link->attempt());
    if (growth_) unusable_hosts_.push_back(link->name());
  }
  const std::vector<StartReport> reports = report(failed);
  result_.id = reports.front().id;
  result_.exit_code = kExitLauncher;
  result_.sentence = reports.front().sentence;
  for (const StartReport& one : reports) {
    if (&one != &reports.front()) evidence_.push_back(message_line(one.id, one.sentence));
    evidence_.insert(evidence_.end(), one.evidence.begin(), one.evidence.end());
  }
  for (const auto& link : links_) link->close_channel();
}

void Head::start_is_slow() {
  const std::vector<std::string> names = awaited_hosts();
  if (names.empty()) return;
  say(MessageId::kWaiting,
      fmt::format("waiting for {} of {} hosts to come up: {}", names.size(), links_.size(), name_hosts(names)));
}

void Head::start_takes_too_long() {
  for (const auto& link : links_) {
    if (link->up() || link->gone()) continue;
    link->give_up(MessageId::kStart,
                  fmt::format("no agent answered within {:g} s (AIACC_INIT_TIMEOUT)", seconds(settings_.start_limit)));
  }
}

void Head::started(const HostLink& link, const wire::Started& message) {
  if (!timeout_.armed() && settings_.timeout > Duration::zero() && result_.cause == Cause::kNone) {
    started_ = loop_.now();
    loop_.arm(timeout_, after(started_, settings_.timeout));
  }
  std::size_t local = 0;
  std::size_t& before = bindings_told_[static_cast<std::size_t>(link.index())];
  std::size_t skipped = std::exchange(before, before + message.bindings.size());
  for (std::size_t rank = 0; rank < hosts_of_ranks_.size() && local < message.bindings.size(); ++rank) {
    if (hosts_of_ranks_[rank] != static_cast<std::size_t>(link.index())) continue;
    if (skipped > 0) {
      --skipped;
      continue;
    }
    const std::string& told = message.bindings[local++];  // text from an agent
    err_.put_own_line(printable(fmt::format("aiaccrun: rank {} on host {}: {}", rank, link.name(), told)));
  }
}

void Head::not_started(HostLink& link, const wire::NotStarted& message) {
  if (growth_ && growth_->is_starting(link)) return growth_->not_started(link, message);  // the rest when it is gone
  for (std::size_t rank = 0; rank < hosts_of_ranks_.size(); ++rank) {
    if (hosts_of_ranks_[rank] == static_cast<std::size_t>(link.index())) rules_.lost(static_cast<int>(rank));
  }
  refusals_.emplace(link.index(), message);
  if (jobs_sent_ && !ranks_started_) return host_answered();
  refuse_start();
}

// Several hosts often refuse for the same reason, so all are awaited, and one sentence names them.
void Head::host_answered() {
  if (++answered_ < links_.size() || result_.cause != Cause::kNone) return;
  if (!refusals_.empty()) return refuse_start();
  ranks_started_ = true;
  say_early_notices();
  wire::StartRanks message;
  to_all(message);
}

// Hosts that say the same, but for their names behind " of ", share a line.
void Head::remember(const HostLink& link, MessageId id, const std::string& sentence) {
  const std::string name = " of " + link.name();
  const std::size_t place = sentence.rfind(name);
  const bool named = place != std::string::npos || one_host();
  std::string without_name = sentence;
  if (place != std::string::npos) without_name.erase(place, name.size());
  early_notices_[{id, without_name}].insert_or_assign(
      link.index(), named ? sentence : fmt::format("host {}: {}", link.name(), sentence));
}

void Head::say_early_notices() {
  for (const auto& [what, sentences] : std::exchange(early_notices_, {})) {
    std::vector<std::string> others;
    for (const auto& [host, sentence] : sentences) others.push_back(links_[static_cast<std::size_t>(host)]->name());
    others.erase(others.begin());
    const std::string& first = sentences.begin()->second;
    say(what.first, others.empty() ? first : fmt::format("{}; likewise on {}", first, name_hosts(others)));
  }
}

void Head::refuse_start() {
  if (!begin_end(Cause::kNotStarted)) return;
  const wire::NotStarted& first = refusals_.begin()->second;
  std::vector<std::string> names;
  for (const auto& [host, refusal] : refusals_) {
    if (refusal.sentence == first.sentence) names.push_back(links_[static_cast<std::size_t>(host)]->name());
  }
  result_.exit_code = first.exit_code;
  result_.id = static_cast<MessageId>(first.message);
  result_.sentence = one_host() && links_.front()->local() ? first.sentence
                                                           : fmt::format("host{} {}: {}", names.size() == 1 ? "" : "s",
                                                                         name_hosts(names), first.sentence);
  end_job();
}

void Head::arm_start() {
  loop_.arm(slow_start_, after(loop_.now(), kSlowStart));
  if (settings_.start_limit > Duration::zero()) loop_.arm(start_limit_, after(loop_.now(), settings_.start_limit));
}

}  // namespace aiacc::launcher

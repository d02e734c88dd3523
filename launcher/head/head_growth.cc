// What a job that gets hosts while it runs adds to the head: further links and ranks, and the time that it may have too few.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/head/head.h"

namespace aiacc::launcher {

bool Head::may_grow() const {
  return ranks_started_ && result_.cause == Cause::kNone && !one_is_done_ && rules_.not_failed() > 0 &&
         !rules_.undecided() && !resets_are_used_up();
}

HostLink& Head::add_link(HostLink::Settings settings) {
  HostLink::Owner& owner = *this;
  start_barrier_.add_host(settings.name);
  owed_.emplace_back();
  bindings_told_.push_back(0);
  HostLink& link = *links_.emplace_back(std::make_unique<HostLink>(loop_, host_, entropy_, std::move(settings), owner));
  scope_->spawn(link.run(scope_->stop()));
  return link;
}

int Head::add_rank(const HostLink& link) {
  hosts_of_ranks_.push_back(static_cast<std::size_t>(link.index()));
  start_barrier_.add_rank();
  return rules_.add();
}

int Head::ranks_in_job() const {
  int count = 0;
  for (int rank = 0; rank < static_cast<int>(hosts_of_ranks_.size()); ++rank) {
    count += rules_.phase(rank) != RankPhase::kExited && !rules_.dismissed(rank);
  }
  return count;
}

int Head::hosts_in_job() const {
  return static_cast<int>(
      std::count_if(links_.begin(), links_.end(), [](const auto& link) { return link->up() && !link->gone(); }));
}

void Head::complete(wire::StartJob& job) const {
  job.credit = shared_.credit;
  job.job = shared_.job;
  job.secret = secret_.text();
  job.elastic = shared_.elastic;
  job.master_address = shared_.master_address;
  job.master_port = shared_.master_port;
  for (const std::size_t host : hosts_of_ranks_) job.hosts_of_ranks.push_back(static_cast<std::uint32_t>(host));
}

void Head::update_hosts(std::uint8_t what) {
  wire::UpdateHosts message;
  message.what = what;
  to_all(message);
}

// The agent's last report about its waiting ranks has this one, so it is void.
void Head::dismiss(int rank, bool now, const std::string& sentence) {
  HostLink& link = *links_[hosts_of_ranks_[static_cast<std::size_t>(rank)]];
  wire::DismissRank order;
  order.rank = rank;
  order.now = now;
  order.sentence = fmt::format("rank {} on host {} takes no part any more: {}", rank, link.name(), sentence);
  link.send(order);
  rules_.dismiss(rank);
  start_barrier_.exited(rank);
  leave_out(rank);
  watch_size();
}

// Those that are left wait in aiacc_init for more, at most for the time of --elastic-timeout.
void Head::watch_size() {
  if (!growth_ || result_.cause != Cause::kNone || one_is_done_ || rules_.not_failed() >= settings_.min_ranks) {
    return too_few_.disarm();
  }
  if (!too_few_.armed() && settings_.elastic_timeout > Duration::zero()) {
    loop_.arm(too_few_, after(loop_.now(), settings_.elastic_timeout));
  }
}

void Head::too_few_for_too_long() {
  if (!begin_end(Cause::kTooFew)) return;
  const int left = rules_.not_failed();
  result_.sentence = fmt::format(
      "the job has had fewer than {} rank{} (--min-np) for {:g} s (--elastic-timeout): {} {} left", settings_.min_ranks,
      settings_.min_ranks == 1 ? "" : "s", seconds(settings_.elastic_timeout), left, left == 1 ? "is" : "are");
  end_job();
}

}  // namespace aiacc::launcher

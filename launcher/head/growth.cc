#include "launcher/head/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/head/start_failure.h"

namespace aiacc::launcher {

namespace {

// Longer than programs usually need from their start to aiacc_init.
constexpr Duration kNewcomersTogether = std::chrono::seconds(10);

}  // namespace

Growth::Growth(Loop& loop, io::Host& host, Settings settings, Owner& owner)
    : loop_(loop),
      source_(*settings.source),
      owner_(owner),
      start_limit_(settings.start_limit),
      pool_(settings.most_ranks, settings.cooldown),
      discovery_(loop, host, source_, *this) {
  pool_.list(settings.hosts);  // until the script has listed others: it may fail the first time that it is asked here
  for (std::size_t index = 0; index < settings.hosts.size(); ++index) {
    const HostPlan& there = settings.hosts[index];
    Link& link = links_[static_cast<int>(index)];
    link.host = there;
    link.ranks = static_cast<int>(there.ranks.size());
    for (std::size_t place = 0; place < there.ranks.size(); ++place) {
      pool_.take(there.name, static_cast<int>(place));
      ranks_[there.ranks[place]] = {static_cast<int>(index), static_cast<int>(place)};
    }
  }
  for (const std::string& name : settings.aside) {
    pool_.set_aside(name, loop.now());
    aside_.insert(name);
  }
}

void Growth::discovery_failed(const std::string& sentence) {
  owner_.tell(MessageId::kDiscovery, sentence + "; the job keeps the hosts of its last list");
}

void Growth::discovery_tick() {
  if (finished_) return;
  give_up_late_hosts();
  announce_newcomers();
  if (!owner_.may_grow()) return;
  let_vanished_go();
  grow();
}

void Growth::let_vanished_go() {
  std::vector<int> gone;
  std::set<std::string> hosts;
  bool any_stays = false;
  for (const auto& [rank, place] : ranks_) {
    const auto there = links_.find(place.link);
    if (place.leaving || there == links_.end()) continue;
    if (pool_.listed(there->second.host.name)) {
      any_stays = any_stays || !waiting_.contains(rank);
    } else if (there->second.state == State::kUp) {
      gone.push_back(rank);
      hosts.insert(there->second.host.name);
    }
  }
  for (const auto& [index, link] : links_) {
    if (link.state == State::kConnecting && !pool_.listed(link.host.name)) owner_.link_at(index).close_channel();
  }
  if (gone.empty()) {
    said_that_all_vanished_ = false;
    return;
  }
  const std::string names = name_hosts({hosts.begin(), hosts.end()});
  if (!any_stays) {
    if (std::exchange(said_that_all_vanished_, true)) return;
    return owner_.tell(MessageId::kHostLeaves, fmt::format("the script does not list {} any more, where all ranks are "
                                                           "that have the job's state: they stay until others have it",
                                                           names));
  }
  std::vector<std::string> numbers;
  bool in_world = false;
  for (const int rank : gone) {
    Place& place = ranks_.at(rank);
    place.leaving = true;
    const std::string& host = links_.at(place.link).host.name;
    pool_.free(host, place.place);
    const bool waits = waiting_.erase(rank) > 0;
    in_world = in_world || !waits;
    numbers.push_back(std::to_string(rank));
    owner_.dismiss(rank, waits, "the script does not list its host any more");
  }
  owner_.tell(MessageId::kHostLeaves,
              fmt::format("the script does not list {} any more: rank{} {} leave{} with the present world", names,
                          gone.size() == 1 ? "" : "s", name_hosts(numbers), gone.size() == 1 ? "s" : ""));
  if (in_world) owner_.update_hosts(wire::kRanksRemoved);
}

void Growth::grow() {
  for (const HostPool::Request& request : pool_.wanted(loop_.now())) {
    const auto there = std::find_if(links_.begin(), links_.end(), [&](const auto& one) {
      return one.second.host.name == request.host.name && one.second.state != State::kEnding;
    });
    if (there == links_.end()) {
      connect(request);
      continue;
    }
    Link& link = there->second;
    if (link.state != State::kUp) continue;  // its slots were taken when its start began; more follow later
    wire::AddRanks order;
    std::vector<int> numbers;
    for (const int place : request.places) {
      pool_.take(link.host.name, place);
      order.ranks.push_back(new_rank(there->first, link, place));
      numbers.push_back(order.ranks.back().rank);
    }
    owner_.link_at(there->first).send(order);
    announce(link, numbers);
  }
}

void Growth::connect(const HostPool::Request& request) {
  const int index = owner_.next_link();
  Link& link = links_[index];
  link.host = request.host;
  link.state = State::kConnecting;
  link.places = request.places;
  link.since = loop_.now();
  for (const int place : request.places) pool_.take(request.host.name, place);
  owner_.add_link(source_.link_to(request.host, index));  // may end at once
}

void Growth::give_up_late_hosts() {
  if (start_limit_ == Duration::zero()) return;
  for (const auto& [index, link] : links_) {
    HostLink& there = owner_.link_at(index);
    if (link.state != State::kConnecting || there.up() || there.gone() || loop_.now() < after(link.since, start_limit_))
      continue;
    there.give_up(MessageId::kStart,
                  fmt::format("no agent answered within {:g} s (AIACC_INIT_TIMEOUT)", seconds(start_limit_)));
  }
}

wire::StartRank Growth::new_rank(int index, Link& link, int place) {
  const int number = owner_.add_rank(owner_.link_at(index));
  ranks_[number] = {index, place};
  waiting_[number] = {};
  ++link.ranks;
  const JobSize size{owner_.ranks_in_job(), link.ranks, owner_.hosts_in_job()};
  wire::StartRank rank;
  rank.rank = number;
  rank.local_rank = place;
  rank.environment = source_.environment_of({number, place, index, {}}, size);
  return rank;
}

bool Growth::is_starting(const HostLink& link) const {
  const auto found = links_.find(link.index());
  return found != links_.end() &&
         (found->second.state == State::kConnecting || found->second.state == State::kPreparing);
}

void Growth::host_up(HostLink& link) {
  Link& there = links_.at(link.index());
  if (!owner_.may_grow()) return link.close_channel();
  there.state = State::kPreparing;
  wire::StartJob job = source_.job_on(there.host, link.index());
  for (const int place : std::exchange(there.places, {})) job.ranks.push_back(new_rank(link.index(), there, place));
  owner_.complete(job);
  link.send(job);
}

void Growth::prepared(HostLink& link) {
  if (finished_) return;  // its channel is closed
  Link& there = links_.at(link.index());
  there.state = State::kUp;
  aside_.erase(there.host.name);
  link.send(wire::StartRanks{});
  std::vector<int> numbers;
  for (const auto& [rank, place] : ranks_) {
    if (place.link == link.index()) numbers.push_back(rank);
  }
  announce(there, numbers);
}

void Growth::announce(const Link& link, const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(std::to_string(rank));
  owner_.tell(MessageId::kNewRanks,
              fmt::format("rank{} {} {} started on host {}, which has {} slot{}", ranks.size() == 1 ? "" : "s",
                          name_hosts(names), ranks.size() == 1 ? "is" : "are", link.host.name, link.host.slots,
                          link.host.slots == 1 ? "" : "s"));
}

void Growth::not_started(HostLink& link, const wire::NotStarted& message) {
  const std::string host = links_.at(link.index()).host.name;
  set_aside(host, static_cast<MessageId>(message.message), fmt::format("host {}: {}", host, message.sentence));
}

void Growth::host_gone(HostLink& link) {
  const auto found = links_.find(link.index());
  if (found == links_.end()) return;
  const Link there = std::move(found->second);
  links_.erase(found);
  for (const int place : there.places) pool_.free(there.host.name, place);
  const bool wanted = !finished_ && pool_.listed(there.host.name);
  if (there.state != State::kConnecting || link.up() || !wanted) return;
  const StartReport why = report({link.attempt()}).front();
  set_aside(there.host.name, why.id, why.sentence);
}

void Growth::set_aside(const std::string& host, MessageId id, const std::string& sentence) {
  pool_.set_aside(host, loop_.now());
  if (aside_.insert(host).second) owner_.tell(id, sentence + "; the job goes on without it, and tries it again later");
}

void Growth::rank_connected(int rank) {
  const auto newcomer = waiting_.find(rank);
  if (newcomer == waiting_.end() || newcomer->second.came != kNever) return;
  newcomer->second.came = loop_.now();
  announce_newcomers();
}

void Growth::announce_newcomers() {
  bool all = std::none_of(links_.begin(), links_.end(), [](const auto& one) {
    return one.second.state == State::kConnecting || one.second.state == State::kPreparing;
  });
  bool patient = true, any = false;
  for (const auto& [rank, newcomer] : waiting_) {
    if (newcomer.announced) continue;
    any = any || newcomer.came != kNever;
    all = all && newcomer.came != kNever;
    patient = patient && (newcomer.came == kNever || loop_.now() < after(newcomer.came, kNewcomersTogether));
  }
  if (!any || (!all && patient) || !owner_.may_grow()) return;
  for (auto& [rank, newcomer] : waiting_) newcomer.announced = newcomer.announced || newcomer.came != kNever;
  owner_.update_hosts(wire::kRanksAdded);
}

void Growth::rank_ended(int rank, bool blames_host) {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return;
  const Place place = found->second;
  ranks_.erase(found);
  waiting_.erase(rank);
  const auto there = links_.find(place.link);
  if (there == links_.end()) return;
  Link& link = there->second;
  if (!place.leaving) pool_.free(link.host.name, place.place);
  if (blames_host) pool_.set_aside(link.host.name, loop_.now());
  // An agent without ranks says good-bye. More ranks would come too late for it.
  if (--link.ranks == 0) link.state = State::kEnding;
}

void Growth::stop_starting() {
  finished_ = true;
  for (const auto& [index, link] : links_) {
    if (is_starting(owner_.link_at(index))) owner_.link_at(index).close_channel();
  }
}

void Growth::finish() {
  if (finished_) return;
  stop_starting();
  for (const auto& [rank, newcomer] : std::map<int, Newcomer>(waiting_)) {
    owner_.dismiss(rank, true, "the other ranks have finished");
  }
}

}  // namespace aiacc::launcher

#include "launcher/head/start_barrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/wire/arrivals_text.h"

namespace aiacc::launcher {

namespace {

constexpr int kNewcomer = std::numeric_limits<int>::max();

}  // namespace

StartBarrier::StartBarrier(std::vector<Host> hosts, bool elastic, int least)
    : hosts_(std::move(hosts)), ready_(hosts_.size()), elastic_(elastic), least_(least) {
  std::size_t ranks = 0;
  for (const Host& host : hosts_) ranks += host.ranks.size();
  numbers_.assign(ranks, kNewcomer);
}

void StartBarrier::set_addresses(int host, std::vector<std::string> addresses) {
  hosts_[static_cast<std::size_t>(host)].addresses = std::move(addresses);
}

std::optional<StartBarrier::Outcome> StartBarrier::ready(int host, const wire::HostReady& message) {
  const std::size_t index = static_cast<std::size_t>(host);
  if (message.ports.size() != hosts_[index].ranks.size()) {
    ready_[index].reset();
    if (elastic_) return std::nullopt;
    throw Error(Code::kProtocol, fmt::format("the agent reports the ports of {} ranks, and has {}",
                                             message.ports.size(), hosts_[index].ranks.size()));
  }
  ready_[index] = message;
  return complete();
}

std::optional<StartBarrier::Outcome> StartBarrier::complete() {
  std::size_t ranks = 0;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].ranks.empty()) continue;
    if (!ready_[i]) return std::nullopt;
    ranks += hosts_[i].ranks.size();
  }
  if (ranks == 0 || (elastic_ && ranks < static_cast<std::size_t>(least_))) return std::nullopt;
  Outcome outcome;
  outcome.refuse = disagreement();
  if (!outcome.refuse) {
    ++worlds_;
    describe(outcome.open.emplace());
  }
  for (const auto& one : ready_) outcome.answers.push_back(one ? one->number : 0);
  ready_.assign(hosts_.size(), std::nullopt);
  return outcome;
}

// Those of the last world come first and keep their order, so that its rank 0, or the first that is left, has the state
// that the others get. In the first world all are newcomers, in the order of their numbers.
void StartBarrier::describe(wire::OpenWorld& world) {
  std::vector<std::pair<int, int>> order;
  for (const Host& host : hosts_) {
    for (const int rank : host.ranks) order.emplace_back(numbers_[static_cast<std::size_t>(rank)], rank);
  }
  std::sort(order.begin(), order.end());
  numbers_.assign(numbers_.size(), kNewcomer);
  for (std::size_t number = 0; number < order.size(); ++number) {
    numbers_[static_cast<std::size_t>(order[number].second)] = static_cast<int>(number);
    if (elastic_) world.ranks.push_back(order[number].second);
  }
  world.ports.resize(order.size());
  if (elastic_) world.hosts_of_ranks.resize(order.size());
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].ranks.empty()) continue;
    for (std::size_t local = 0; local < hosts_[i].ranks.size(); ++local) {
      const auto number = static_cast<std::size_t>(numbers_[static_cast<std::size_t>(hosts_[i].ranks[local])]);
      world.ports[number] = ready_[i]->ports[local];
      if (elastic_) world.hosts_of_ranks[number] = static_cast<std::uint32_t>(world.hosts.size());
    }
    world.hosts.push_back({hosts_[i].name, hosts_[i].addresses});
  }
}

void StartBarrier::exited(int rank) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const std::vector<int>& ranks = hosts_[i].ranks;
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) ready_[i].reset();
  }
}

int StartBarrier::add_host(const std::string& name) {
  hosts_.push_back({name, {}, {}});
  ready_.emplace_back();
  return static_cast<int>(hosts_.size()) - 1;
}

int StartBarrier::add_rank() {
  numbers_.push_back(kNewcomer);
  return static_cast<int>(numbers_.size()) - 1;
}

// Its host has reported without it, if at all. Agents report the ports of their ranks in the order of their numbers, in whatever
// order these have said hello.
void StartBarrier::admit(int host, int rank) {
  const auto index = static_cast<std::size_t>(host);
  std::vector<int>& ranks = hosts_[index].ranks;
  ranks.insert(std::upper_bound(ranks.begin(), ranks.end(), rank), rank);
  ready_[index].reset();
}

bool StartBarrier::awaits(int rank) const {
  return std::any_of(hosts_.begin(), hosts_.end(), [rank](const Host& host) {
    return std::find(host.ranks.begin(), host.ranks.end(), rank) != host.ranks.end();
  });
}

void StartBarrier::replaced(int rank) { numbers_[static_cast<std::size_t>(rank)] = kNewcomer; }

std::optional<StartBarrier::Outcome> StartBarrier::leave_out(int rank) {
  for (Host& host : hosts_) std::erase(host.ranks, rank);
  return complete();
}

std::optional<wire::RefuseWorld> StartBarrier::disagreement() const {
  std::size_t first = 0;
  while (!ready_[first]) ++first;
  for (std::size_t i = first + 1; i < hosts_.size(); ++i) {
    if (!ready_[i] || ready_[i]->library_version == ready_[first]->library_version) continue;
    wire::RefuseWorld refusal;
    refusal.code = static_cast<std::int32_t>(Code::kMismatch);
    refusal.sentence = wire::version_mismatch_text(
        fmt::format("ranks on host {} use", hosts_[first].name), ready_[first]->library_version,
        fmt::format("ranks on host {}", hosts_[i].name), ready_[i]->library_version);
    return refusal;
  }
  return std::nullopt;
}

}  // namespace aiacc::launcher

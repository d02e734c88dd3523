#include "launcher/head/start_barrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/wire/arrivals_text.h"

namespace aiacc::launcher {

StartBarrier::StartBarrier(std::vector<Host> hosts) : hosts_(std::move(hosts)), ready_(hosts_.size()) {}

void StartBarrier::set_addresses(int host, std::vector<std::string> addresses) {
  hosts_[static_cast<std::size_t>(host)].addresses = std::move(addresses);
}

std::optional<StartBarrier::Outcome> StartBarrier::ready(int host, const wire::HostReady& message) {
  const std::size_t index = static_cast<std::size_t>(host);
  if (message.ports.size() != hosts_[index].ranks.size()) {
    throw Error(Code::kProtocol, fmt::format("the agent reports the ports of {} ranks, and has {}",
                                             message.ports.size(), hosts_[index].ranks.size()));
  }
  ready_[index] = message;
  if (!std::all_of(ready_.begin(), ready_.end(), [](const auto& one) { return one.has_value(); })) return std::nullopt;

  Outcome outcome;
  outcome.refuse = disagreement();
  if (!outcome.refuse) {
    wire::OpenWorld& world = outcome.open.emplace();
    std::size_t ranks = 0;
    for (const Host& one : hosts_) ranks += one.ranks.size();
    world.ports.resize(ranks);
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      world.hosts.push_back({hosts_[i].name, hosts_[i].addresses});
      for (std::size_t local = 0; local < hosts_[i].ranks.size(); ++local) {
        world.ports[static_cast<std::size_t>(hosts_[i].ranks[local])] = ready_[i]->ports[local];
      }
    }
  }
  ready_.assign(hosts_.size(), std::nullopt);
  return outcome;
}

std::optional<wire::RefuseWorld> StartBarrier::disagreement() const {
  for (std::size_t i = 1; i < hosts_.size(); ++i) {
    if (ready_[i]->library_version == ready_[0]->library_version) continue;
    wire::RefuseWorld refusal;
    refusal.code = static_cast<std::int32_t>(Code::kMismatch);
    refusal.sentence =
        wire::version_mismatch_text(fmt::format("ranks on host {} use", hosts_[0].name), ready_[0]->library_version,
                                    fmt::format("ranks on host {}", hosts_[i].name), ready_[i]->library_version);
    return refusal;
  }
  return std::nullopt;
}

}  // namespace aiacc::launcher

#include "launcher/head/host_pool.h"

#include <algorithm>

namespace aiacc::launcher {

void HostPool::list(const std::vector<HostPlan>& hosts) { listed_ = hosts; }

void HostPool::take(const std::string& host, int place) { states_[host].taken.insert(place); }

void HostPool::free(const std::string& host, int place) { states_[host].taken.erase(place); }

void HostPool::set_aside(const std::string& host, Instant now) {
  State& state = states_[host];
  if (state.aside_until > now) return;  // several of its ranks failed at once
  state.cooldown =
      state.cooldown == Duration::zero() ? cooldown_.first : std::min(2 * state.cooldown, cooldown_.longest);
  state.aside_until = after(now, state.cooldown);
}

std::vector<HostPool::Request> HostPool::wanted(Instant now) const {
  std::vector<Request> requests;
  int missing = most_ranks_ - taken();
  for (const HostPlan& host : listed_) {
    const auto known = states_.find(host.name);
    if (known != states_.end() && known->second.aside_until > now) continue;
    Request request{host, {}};
    for (int place = 0; place < host.slots && missing > 0; ++place) {
      if (known != states_.end() && known->second.taken.contains(place)) continue;
      request.places.push_back(place);
      --missing;
    }
    // A host whose slots have become fewer than its ranks has places beyond them.
    const int had = known == states_.end() ? 0 : static_cast<int>(known->second.taken.size());
    while (!request.places.empty() && had + static_cast<int>(request.places.size()) > host.slots) {
      request.places.pop_back();
      ++missing;
    }
    if (!request.places.empty()) requests.push_back(std::move(request));
  }
  return requests;
}

bool HostPool::listed(const std::string& host) const {
  return std::any_of(listed_.begin(), listed_.end(), [&](const HostPlan& one) { return one.name == host; });
}

Instant HostPool::aside_until(const std::string& host) const {
  const auto known = states_.find(host);
  return known == states_.end() ? Instant{} : known->second.aside_until;
}

int HostPool::taken() const noexcept {
  int all = 0;
  for (const auto& [host, state] : states_) all += static_cast<int>(state.taken.size());
  return all;
}

}  // namespace aiacc::launcher

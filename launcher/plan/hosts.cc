#include "launcher/plan/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace aiacc::launcher {

namespace {

constexpr int kNoLimit = std::numeric_limits<int>::max();

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string counted(int n, std::string_view noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

std::string access_in_words(const HostSpec& spec) {
  std::string text = spec.user.empty() ? "no user" : "user " + spec.user;
  return text + (spec.port == 0 ? " and no port" : fmt::format(" and port {}", spec.port));
}

bool is_here(const std::string& name, const Surroundings& here) {
  return is_this_host(name, here.host_name) || (!here.slurm.own_name.empty() && same_name(name, here.slurm.own_name));
}

bool is_node_of(const SlurmJob& job, const HostPlan& host) {
  return job.has_srun && host.user.empty() && host.port == 0 &&
         std::find(job.nodes.begin(), job.nodes.end(), host.name) != job.nodes.end();
}

// The hosts of the list, each name once. `seen` holds the first entry of each host.
std::vector<HostPlan> merged(const std::vector<HostSpec>& list, const Surroundings& here) {
  std::vector<HostPlan> hosts;
  std::vector<const HostSpec*> seen;
  for (const HostSpec& spec : list) {
    const bool own = is_here(spec.name, here);
    const auto same = [&](const HostSpec* other) {
      return own ? is_here(other->name, here) : same_name(other->name, spec.name);
    };
    const auto before = std::find_if(seen.begin(), seen.end(), same);
    if (before == seen.end()) {
      HostPlan& host = hosts.emplace_back();
      // A user or a port in the entry makes aiaccrun reach even this host over ssh.
      host.local = own && spec.user.empty() && spec.port == 0;
      host.name = host.local ? here.host_name : spec.name;
      host.user = spec.user;
      host.port = spec.port;
      host.by_srun = !host.local && is_node_of(here.slurm, host);
      host.slots = spec.slots;
      seen.push_back(&spec);
      continue;
    }
    const HostSpec& first = **before;
    if (first.user != spec.user || first.port != spec.port) {
      throw UsageError(MessageId::kHosts,
                       fmt::format("host {} has {} in {} and {} in {}; give it the same everywhere", spec.name,
                                   access_in_words(first), first.where, access_in_words(spec), spec.where));
    }
    hosts[static_cast<std::size_t>(before - seen.begin())].slots += spec.slots;
  }
  return hosts;
}

// Merges hosts whose names turned out to be one machine; the first name keeps its place in the list. If the machine is
// this host, it is reached directly, because that needs no starter.
void join_machine(std::vector<HostPlan>& hosts, const std::vector<std::string>& names) {
  const auto named = [&](const HostPlan& host) {
    return std::find(names.begin(), names.end(), host.name) != names.end();
  };
  const auto first = std::find_if(hosts.begin(), hosts.end(), named);
  if (first == hosts.end()) return;
  for (auto other = std::find_if(first + 1, hosts.end(), named); other != hosts.end();
       other = std::find_if(other, hosts.end(), named)) {
    HostPlan joined = std::move(*other);
    other = hosts.erase(other);
    if (joined.local) std::swap(joined, *first);
    first->slots += joined.slots;
    first->other_names.push_back(joined.name);
    first->other_names.insert(first->other_names.end(), joined.other_names.begin(), joined.other_names.end());
  }
}

int number_of_ranks(const Options& options, int hosts, int slots) {
  const int each = options.ranks_per_host.value;
  if (options.ranks.given()) {
    const int needed = each == 0 ? 1 : (options.ranks.value + each - 1) / each;
    if (needed > hosts) {
      throw UsageError(
          MessageId::kRanks,
          fmt::format("{} ranks with -N {} need {} hosts, and there {}; raise -N or lower -np", options.ranks.value,
                      each, needed, hosts == 1 ? std::string("is one") : fmt::format("are {}", hosts)));
    }
    return options.ranks.value;
  }
  if (each != 0) return each * hosts;
  if (slots != 0) return slots;
  throw UsageError(MessageId::kRanks, "how many ranks? give -np N, or hosts with their slots (-H HOST:SLOTS)");
}

[[noreturn]] void too_few_slots(int ranks, const std::vector<HostPlan>& hosts, const std::vector<int>& max_ranks,
                                const std::string& allocation) {
  const int slots = std::accumulate(max_ranks.begin(), max_ranks.end(), 0);
  const std::string numbers = fmt::format("{} for {} on ", counted(ranks, "rank"), counted(slots, "slot"));
  constexpr std::size_t kNamed = 4;
  std::string which = hosts.front().name;
  if (hosts.size() > 1) {
    which.clear();
    for (std::size_t i = 0; i < std::min(hosts.size(), kNamed); ++i) {
      which += fmt::format("{}{}: {}", i == 0 ? "" : ", ", hosts[i].name, max_ranks[i]);
    }
    which = fmt::format("{} hosts ({}{})", hosts.size(), which, hosts.size() > kNamed ? ", ..." : "");
  }
  std::string cure = fmt::format("use -np {} or less, ", slots);
  if (!allocation.empty()) {
    cure = fmt::format("which {} has given; ask it for more tasks, ", allocation);
  } else if (hosts.size() == 1) {
    cure += fmt::format("-H {}:{}, ", hosts.front().local ? "localhost" : hosts.front().name, ranks);
  } else {
    cure += "give the hosts more slots, ";
  }
  throw UsageError(MessageId::kSlots,
                   numbers + which + (allocation.empty() ? "; " : ", ") + cure + "or --oversubscribe");
}

// The most ranks that each host can get: by its slots and by -N.
std::vector<int> max_ranks_per_host(const std::vector<HostPlan>& hosts, int each) {
  std::vector<int> max_ranks;
  for (const HostPlan& host : hosts) {
    const int slots = host.slots == 0 ? kNoLimit : host.slots;
    max_ranks.push_back(each == 0 ? slots : std::min(slots, each));
  }
  return max_ranks;
}

// The host of each rank; hosts are filled one after the other, or round-robin (`in_turn`). Ranks beyond the slots
// (--oversubscribe) are assigned round-robin.
std::vector<std::size_t> fill(int ranks, const std::vector<int>& max_ranks, int each, bool in_turn) {
  std::vector<int> count(max_ranks.size(), 0);
  std::vector<std::size_t> order;
  const auto left = [&] { return static_cast<int>(order.size()) < ranks; };
  const auto put = [&](std::size_t host) {
    ++count[host];
    order.push_back(host);
  };
  if (in_turn) {
    for (bool any = true; any && left();) {
      any = false;
      for (std::size_t host = 0; host < max_ranks.size() && left(); ++host) {
        if (count[host] >= max_ranks[host]) continue;
        put(host);
        any = true;
      }
    }
  } else {
    for (std::size_t host = 0; host < max_ranks.size(); ++host) {
      while (left() && count[host] < max_ranks[host]) put(host);
    }
  }
  for (std::size_t host = 0; left(); host = (host + 1) % max_ranks.size()) {
    if (each == 0 || count[host] < each) put(host);
  }
  if (!in_turn) std::stable_sort(order.begin(), order.end());  // ranks of a host are consecutive
  return order;
}

}  // namespace

bool is_this_host(const std::string& name, const std::string& host_name) {
  if (name == "127.0.0.1" || name == "::1") return true;
  if (same_name(name, "localhost") || same_name(name, host_name)) return true;
  // "c01" means "c01.cluster", but "c01.cluster" does not mean "c01": another domain may have a c01 too.
  return same_name(name, std::string_view(host_name).substr(0, host_name.find('.')));
}

std::vector<HostPlan> listed_hosts(const std::vector<HostSpec>& list, const Options& options,
                                   const Surroundings& here) {
  std::vector<HostPlan> hosts = merged(list, here);
  for (const auto& names : here.same_machines) join_machine(hosts, names);
  const int each = options.ranks_per_host.value;
  for (HostPlan& host : hosts) {
    if (each != 0) host.slots = std::min(host.slots, each);
  }
  return hosts;
}

std::vector<HostPlan> plan_hosts(const Options& options, const Surroundings& here) {
  std::vector<HostPlan> hosts = merged(options.hosts.value, here);
  for (const auto& names : here.same_machines) join_machine(hosts, names);
  if (hosts.empty()) {
    HostPlan& host = hosts.emplace_back();
    host.name = here.host_name;
    host.local = true;
  }
  const int each = options.ranks_per_host.value;
  const int slots =
      std::accumulate(hosts.begin(), hosts.end(), 0, [](int sum, const HostPlan& h) { return sum + h.slots; });
  const int ranks = number_of_ranks(options, static_cast<int>(hosts.size()), slots);
  const std::vector<int> max_ranks = max_ranks_per_host(hosts, each);
  const bool limited = slots != 0 && !options.oversubscribe.value;
  if (limited && ranks > std::accumulate(max_ranks.begin(), max_ranks.end(), 0))
    too_few_slots(ranks, hosts, max_ranks, options.allocation);

  const std::vector<std::size_t> order = fill(ranks, max_ranks, each, options.map_by.value == MapBy::kNode);
  for (int rank = 0; rank < ranks; ++rank) hosts[order[static_cast<std::size_t>(rank)]].ranks.push_back(rank);
  std::erase_if(hosts, [](const HostPlan& host) { return host.ranks.empty(); });
  return hosts;
}

}  // namespace aiacc::launcher

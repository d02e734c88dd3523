#include "launcher/plan/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace aiacc::launcher {

namespace {

using Cores = std::vector<Topology::Core>;
using Indices = std::vector<std::size_t>;  // of cores, or of ranks

struct Share {
  std::size_t first = 0;
  std::size_t count = 0;
};

// Part `part` of `total` things in `parts` contiguous parts; each of the first parts gets one of the remainder.
Share share(std::size_t total, std::size_t parts, std::size_t part) {
  const std::size_t even = total / parts;
  const std::size_t rest = total % parts;
  return {part * even + std::min(part, rest), even + (part < rest ? 1 : 0)};
}

unsigned domain_of(const Topology::Core& core, MapBy by) { return by == MapBy::kNuma ? core.numa : core.package; }

// A domain's cores, and the ranks assigned to it.
struct Domain {
  Indices cores;
  Indices ranks;
};

// Assigns ranks to domains round-robin. A full domain is skipped while another one has a free core.
std::vector<Domain> deal(std::size_t ranks, MapBy by, const Topology& topology) {
  const Cores& cores = topology.cores();
  std::vector<Domain> domains(by == MapBy::kNuma ? topology.numa_domains() : topology.packages());
  for (std::size_t core = 0; core < cores.size(); ++core) domains[domain_of(cores[core], by)].cores.push_back(core);
  std::size_t turn = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const bool room = rank < cores.size();
    while (room && domains[turn].ranks.size() >= domains[turn].cores.size()) turn = (turn + 1) % domains.size();
    domains[turn].ranks.push_back(rank);
    turn = (turn + 1) % domains.size();
  }
  return domains;
}

bool by_domain(MapBy by) { return by == MapBy::kNuma || by == MapBy::kPackage; }

Indices home_cores(std::size_t ranks, MapBy by, const Topology& topology) {
  const std::size_t cores = topology.cores().size();
  Indices homes(ranks);
  if (by_domain(by)) {
    for (const Domain& domain : deal(ranks, by, topology)) {
      for (std::size_t i = 0; i < domain.ranks.size(); ++i)
        homes[domain.ranks[i]] = domain.cores[i % domain.cores.size()];
    }
    return homes;
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const bool crowded = ranks > cores;
    const std::size_t start = crowded ? rank * cores / ranks : share(cores, ranks, rank).first;
    homes[rank] = by == MapBy::kCore ? rank % cores : start;
  }
  return homes;
}

// The cores of each rank with `auto`. At most one rank per core.
std::vector<Indices> equal_shares(std::size_t ranks, MapBy by, const Topology& topology) {
  Domain whole;
  for (std::size_t core = 0; core < topology.cores().size(); ++core) whole.cores.push_back(core);
  for (std::size_t rank = 0; rank < ranks; ++rank) whole.ranks.push_back(rank);

  std::vector<Indices> shares(ranks);
  for (const Domain& domain : by_domain(by) ? deal(ranks, by, topology) : std::vector<Domain>{whole}) {
    for (std::size_t i = 0; i < domain.ranks.size(); ++i) {
      const Share mine = share(domain.cores.size(), domain.ranks.size(), i);
      const auto begin = domain.cores.begin() + static_cast<std::ptrdiff_t>(mine.first);
      shares[domain.ranks[i]].assign(begin, begin + static_cast<std::ptrdiff_t>(mine.count));
    }
  }
  return shares;
}

// The cores of each rank with an explicit --bind-to: those of the object that contains its home core.
std::vector<Indices> around_homes(std::size_t ranks, MapBy by, BindTo to, const Topology& topology) {
  const Cores& cores = topology.cores();
  std::vector<Indices> out(ranks);
  const Indices homes = home_cores(ranks, by, topology);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Topology::Core& home = cores[homes[rank]];
    for (std::size_t core = 0; core < cores.size(); ++core) {
      const bool inside = to == BindTo::kCore   ? core == homes[rank]
                          : to == BindTo::kNuma ? cores[core].numa == home.numa
                                                : cores[core].package == home.package;
      if (inside) out[rank].push_back(core);
    }
  }
  return out;
}

io::CpuList units_of(const Indices& mine, const Topology& topology) {
  io::CpuList cpus;
  for (const std::size_t core : mine) {
    const io::CpuList& pus = topology.cores()[core].pus;
    cpus.insert(cpus.end(), pus.begin(), pus.end());
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::string why_not(std::size_t ranks, BindTo to, const Topology& topology) {
  if (to == BindTo::kNone) return "--bind-to none";
  if (to == BindTo::kAuto && topology.quota_below_mask()) {
    return fmt::format("the CPU quota of {:g} ({}) is below the {} usable cpus and names none of them",
                       topology.quota()->cpus, topology.quota()->where, topology.pus().size());
  }
  const bool one_core_each = to == BindTo::kAuto || to == BindTo::kCore;
  if (one_core_each && ranks > topology.cores().size()) {
    return fmt::format("{} ranks outnumber {} usable cores", ranks, topology.cores().size());
  }
  return "";
}

// Threads for each of `ranks` ranks that share the time of `available` cores.
int threads_for(double available, std::size_t ranks) {
  return std::max(1, static_cast<int>(available / static_cast<double>(ranks)));
}

}  // namespace

Binding bind_ranks(int count, MapBy map_by, BindTo bind_to, const Topology& topology) {
  const std::size_t ranks = static_cast<std::size_t>(count);
  const bool quota = topology.quota_below_mask();
  const int fed = threads_for(quota ? topology.quota()->cpus : static_cast<double>(topology.cores().size()), ranks);

  Binding out;
  out.unbound_because = why_not(ranks, bind_to, topology);
  if (!out.unbound_because.empty()) {
    out.cpus.resize(ranks);
    out.threads.assign(ranks, fed);
    return out;
  }
  const std::vector<Indices> cores =
      bind_to == BindTo::kAuto ? equal_shares(ranks, map_by, topology) : around_homes(ranks, map_by, bind_to, topology);
  std::map<Indices, std::size_t> sharers;
  for (const Indices& mine : cores) ++sharers[mine];
  for (const Indices& mine : cores) {
    out.cpus.push_back(units_of(mine, topology));
    const int own = threads_for(static_cast<double>(mine.size()), sharers[mine]);
    out.threads.push_back(quota ? std::min(own, fed) : own);
  }
  return out;
}

}  // namespace aiacc::launcher

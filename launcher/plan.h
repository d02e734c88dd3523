// The plan of a job: which ranks on which host, bound to what, with which environment, command and directory.
//
// Pure functions of what was asked for (Options) and what there is (Surroundings): nothing is started or looked at here, so
// --dry-run prints exactly what a run would do. What is known only when the agent is up comes in as Wiring.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/topology/topology.h"
#include "launcher/options.h"

namespace aiacc::launcher {

// What the launcher finds when it starts. Taken once, by main.
struct Surroundings {
  std::string host_name;
  std::string cwd;                       // absolute
  std::vector<std::string> environment;  // "NAME=value"
  Topology topology;
};

struct Notice {
  MessageId id;
  std::string sentence;
};

struct HostPlan {
  std::string name;
  int slots = 0;       // 0: no host list was given, any number
  int first_rank = 0;  // its ranks are first_rank .. first_rank + ranks - 1
  int ranks = 0;
};

struct RankPlan {
  int rank = 0;
  int local_rank = 0;
  int host = 0;         // index into Plan::hosts
  io::CpuList binding;  // empty: not bound, it inherits the launcher's mask
  // What this rank alone gets, "NAME=value", beside Plan::environment and the wiring.
  std::vector<std::string> environment;
};

struct Plan {
  std::vector<HostPlan> hosts;
  std::vector<RankPlan> ranks;
  std::vector<std::string> argv;         // the program as typed, and its arguments
  std::string cwd;                       // absolute
  std::vector<std::string> environment;  // common to all ranks, "NAME=value", no name twice and none of a rank's own
  std::string unbound_because;           // why no rank is bound, if so; for --dry-run and --report-bindings
  std::vector<Notice> notices;           // for stderr before the job starts, one line each

  int size() const noexcept { return static_cast<int>(ranks.size()); }
};

// Throws UsageError: more ranks than slots, a host that is not this one, an unset variable …
Plan make_plan(const Options& options, const Surroundings& here);

// What is known when the agent is up.
struct Wiring {
  std::string agent;                         // AIACC_AGENT, e.g. "local:NAME"
  std::string master_address = "127.0.0.1";  // MASTER_ADDR
  std::uint16_t master_port = 0;             // MASTER_PORT: kept bound, not listening, by the agent
};

// The complete environment of a rank, ready for SpawnSpec::env. No name stands twice; what the launcher sets wins over what
// was forwarded or inherited.
std::vector<std::string> rank_environment(const Plan& plan, int rank, const Wiring& wiring);

// --dry-run: hosts, ranks, bindings, directory, command, what is set for the ranks, options and their origin.
std::string describe_plan(const Plan& plan, const Options& options, const Surroundings& here);

// "cores 0-3 (cpus 0-3,8-11) of NUMA 0, package 0"; "not bound (cpus 0-15)" when it covers every usable unit. For
// --report-bindings, with the mask that the kernel reports.
std::string describe_binding(const io::CpuList& cpus, const Topology& topology);

}  // namespace aiacc::launcher

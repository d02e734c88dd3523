// The plan of a job: which ranks on which host, bound to what, with which environment, command and directory.
//
// Pure functions of what was asked for (Options) and what there is (Surroundings): nothing is started or looked at here, so
// --dry-run prints exactly what a run would do. What is known only when the agents are up comes in as Wiring, and which
// cores a rank gets is the agent's to find (placement.h): it alone sees the machine.
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
  std::string cwd;                       // absolute; empty if aiaccrun's directory was removed
  std::vector<std::string> environment;  // "NAME=value"
  std::string program;                   // this aiaccrun: what runs on other hosts too
  bool terminal = false;                 // aiaccrun's standard output is one
  // Names of hosts, as a plan had them, that turned out to be one machine when it was reached.
  std::vector<std::vector<std::string>> same_machines = {};
};

struct Notice {
  MessageId id;
  std::string sentence;
};

struct HostPlan {
  std::string name;
  std::vector<std::string> other_names;  // of the same machine, where names turned out to be
  std::string user;                      // empty: whoever the starter takes
  int port = 0;                          // 0: whatever the starter takes
  bool local = false;
  int slots = 0;           // 0: no host list was given, any number
  std::vector<int> ranks;  // ascending; a rank's place in it is its local rank
};

struct RankPlan {
  int rank = 0;
  int local_rank = 0;
  int host = 0;  // index into Plan::hosts
  // What this rank alone gets, "NAME=value", beside its host's environment and the wiring.
  std::vector<std::string> environment;
};

// What was asked about cores: the same for every host.
struct PlacementPolicy {
  MapBy map_by = MapBy::kSlot;
  BindTo bind_to = BindTo::kAuto;
  bool bind_asked = false;  // --bind-to was given
  bool oversubscribe = false;
};

struct Plan {
  std::vector<HostPlan> hosts;
  std::vector<RankPlan> ranks;
  std::vector<std::string> argv;  // the program as typed, and its arguments
  std::string cwd;                // absolute, the same on every host
  // Common to the ranks of this host, "NAME=value", no name twice and none of a rank's own; and what ranks of other hosts
  // get over their login's environment.
  std::vector<std::string> environment;
  std::vector<std::string> remote_environment;
  PlacementPolicy placement;
  int input_rank = 0;           // reads aiaccrun's standard input; kNoRank: none does
  std::vector<Notice> notices;  // for stderr before the job starts, one line each

  int size() const noexcept { return static_cast<int>(ranks.size()); }
};

// Throws UsageError: more ranks than slots, an unset variable …
Plan make_plan(const Options& options, const Surroundings& here);

// What is known when the agent is up.
struct Wiring {
  std::string agent;                         // AIACC_AGENT, e.g. "local:NAME"
  std::string master_address = "127.0.0.1";  // MASTER_ADDR
  std::uint16_t master_port = 0;             // MASTER_PORT: kept bound, not listening, by the agent
};

// --dry-run: hosts, ranks, bindings, agents' command lines, directory, program, what is set for the ranks, options and their
// origin. `topology` is this host's; others are assumed to be like it.
std::string describe_plan(const Plan& plan, const Options& options, const Surroundings& here, const Topology& topology);

// "cores 0-3 (cpus 0-3,8-11) of NUMA 0, package 0"; "not bound (cpus 0-15)" when it covers every usable unit. For
// --report-bindings, with the mask that the kernel reports.
std::string describe_binding(const io::CpuList& cpus, const Topology& topology);

}  // namespace aiacc::launcher

// launcher/plan: from options to a plan: hosts, ranks, placement and binding, environment, program, and the command
// that reaches a host. It reads files and topology, and has no other side effects. Not here: anything that starts a
// process (launcher/head, launcher/agent).
//
// The plan of a job: which ranks on which host, bound to what, with which environment, command and directory.
//
// Pure functions of Options and Surroundings: nothing is started here, so --dry-run prints exactly what a run would do.
// What is known only when the agents are up is in Wiring. The agent decides which cores a rank gets (placement.h),
// because only it has loaded its machine's topology.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/topology/topology.h"
#include "launcher/cli/options.h"

namespace aiacc::launcher {

// A job of Slurm, whose nodes aiaccrun reaches by srun.
struct SlurmJob {
  std::vector<std::string> nodes;  // by their names in Slurm
  std::string own_name;            // of the node on which aiaccrun runs; empty: it is none of them
  bool has_srun = false;           // here, to reach the others
};

// The launcher's environment at its start; main fills it in once.
struct Surroundings {
  std::string host_name;
  std::string cwd;                       // absolute; empty if aiaccrun's directory was removed
  std::vector<std::string> environment;  // "NAME=value"
  std::string program;                   // the path of this aiaccrun, which other hosts run too
  bool terminal = false;                 // aiaccrun's standard output is a terminal
  SlurmJob slurm = {};                   // around aiaccrun; without nodes if there is none
  // Groups of host names of an earlier plan that turned out to be one machine after connecting.
  std::vector<std::vector<std::string>> same_machines = {};
};

struct Notice {
  MessageId id;
  std::string sentence;
};

struct HostPlan {
  std::string name;
  std::vector<std::string> other_names;  // further names of the same machine
  std::string user;                      // empty: the starter's choice
  int port = 0;                          // 0: the starter's choice
  bool local = false;
  bool by_srun = false;    // a node of Surroundings::slurm
  int slots = 0;           // 0: unlimited, because no host list was given
  std::vector<int> ranks;  // ascending; a rank's index here is its local rank
};

struct RankPlan {
  int rank = 0;
  int local_rank = 0;
  int host = 0;  // index into Plan::hosts
  // This rank's own variables, "NAME=value", in addition to its host's environment and the wiring.
  std::vector<std::string> environment;
};

// The requested mapping and binding: the same for every host.
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
  // "NAME=value", each name once: variables common to the ranks of this host, none of a rank's own; and variables that
  // are added to the login's environment on other hosts.
  std::vector<std::string> environment;
  std::vector<std::string> remote_environment;
  PlacementPolicy placement;
  int input_rank = 0;           // reads aiaccrun's standard input; kNoRank: none does
  int min_size = 0;             // of --min-np; 0: not given
  int max_size = 0;             // of --max-np; 0: not given
  bool gets_hosts = false;      // of --host-discovery-script: hosts and ranks come while it runs
  Duration init_timeout{};      // AIACC_INIT_TIMEOUT of the ranks; zero: as it is in their environment
  std::vector<Notice> notices;  // for stderr before the job starts, one line each

  int size() const noexcept { return static_cast<int>(ranks.size()); }
};

// Throws UsageError: more ranks than slots, an unset variable …
Plan make_plan(const Options& options, const Surroundings& here);

// What is known only after the agent has started.
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

// The environment of ranks: inherited variables, those that -x adds, and those that aiaccrun sets and nothing
// overrides.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/plan.h"

namespace aiacc::launcher {

// An ordered set of "NAME=value"; each name occurs once.
class Environment {
 public:
  Environment() = default;
  // The first of equal names counts, as for getenv(3); entries that are not variables are left out.
  explicit Environment(const std::vector<std::string>& entries);

  void set(const std::string& name, std::string_view value);  // replaces
  void remove(std::string_view name);
  bool has(std::string_view name) const { return find(name) != npos; }
  std::string_view get(std::string_view name) const;  // "" if there is none
  const std::vector<std::string>& entries() const noexcept { return entries_; }

 private:
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
  std::size_t find(std::string_view name) const;
  std::vector<std::string> entries_;
};

// Variables that aiaccrun always sets for each rank; those of `families` only with --compat-env.
bool is_set_by_launcher(std::string_view name, const CompatEnv& families);

// Whether another launcher uses this variable to tell a process its rank. aiaccrun's own value would mislead its ranks.
bool is_foreign_identity(std::string_view name);

// Whether Slurm describes the job by this variable, and neither a node of it nor a step.
bool is_of_slurm_job(std::string_view name);

// `own` of a process in a step of a Slurm job, without what describes that step or the job.
Environment without_slurm_step(const std::vector<std::string>& own);

// The variables that all ranks of this host share: inherited and forwarded. Adds notices for forwards without effect;
// throws UsageError for `-x NAME` when NAME is not set.
Environment common_environment(const Options& options, const Surroundings& here, std::vector<Notice>& notices);

// The variables that ranks of other hosts get from aiaccrun: those of libraries and interpreters that concern a job on
// every host, those of the Slurm job around it, and those of -x. All other variables come from the login on that host.
Environment remote_environment(const Options& options, const Surroundings& here);

// `ours` without the variables by which a launcher, aiaccrun included, identifies a rank.
Environment without_identity(const std::vector<std::string>& ours, const CompatEnv& families);

// How many ranks and hosts a job has when a rank starts.
struct JobSize {
  int ranks = 1;
  int ranks_of_host = 1;
  int hosts = 1;
};

// A rank's own variables, except those that need Wiring.
std::vector<std::string> own_environment(const RankPlan& rank, const JobSize& job, const Plan& plan,
                                         const CompatEnv& families);

// The complete environment of a rank, ready for SpawnSpec::env. Names are unique; variables of the launcher override
// forwarded and inherited ones. `threads` is the value of OMP_NUM_THREADS where it is not set.
std::vector<std::string> rank_environment(const Environment& common, const std::vector<std::string>& own,
                                          const Wiring& wiring, int threads);

}  // namespace aiacc::launcher

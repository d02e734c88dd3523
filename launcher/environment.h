// The environment of ranks: what is inherited, what -x adds, and what aiaccrun sets and nothing overrides.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan.h"

namespace aiacc::launcher {

// An ordered set of "NAME=value"; a name stands once.
class Environment {
 public:
  Environment() = default;
  // The first of equal names counts, as for getenv(3); entries that are no variables are left out.
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

// Set for each rank whatever else was asked for; those of the families only with --compat-env.
bool is_set_by_launcher(std::string_view name, const CompatEnv& families);

// A variable by which another launcher told *us* who we are. It is wrong for our ranks, which would believe it.
bool is_foreign_identity(std::string_view name);

// What all ranks of this host have in common: inherited and forwarded. Adds notices for forwards without effect; throws
// UsageError for `-x NAME` when NAME is not set.
Environment common_environment(const Options& options, const Surroundings& here, std::vector<Notice>& notices);

// What ranks of other hosts get of ours: the variables of libraries and interpreters that concern a job everywhere, and what
// is forwarded. All else is their login's.
Environment remote_environment(const Options& options, const Surroundings& here);

// `ours` without what another launcher, or this one, told about us.
Environment without_identity(const std::vector<std::string>& ours, const CompatEnv& families);

// A rank's own, but for the wiring.
std::vector<std::string> own_environment(const RankPlan& rank, const Plan& plan, const CompatEnv& families);

// The complete environment of a rank, ready for SpawnSpec::env. No name stands twice; what the launcher sets wins over what
// was forwarded or inherited. `threads` is for OMP_NUM_THREADS, where that is not set.
std::vector<std::string> rank_environment(const Environment& common, const std::vector<std::string>& own,
                                          const Wiring& wiring, int threads);

}  // namespace aiacc::launcher

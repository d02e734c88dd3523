// How contexts of a living process are made: by joining the job that started it, or as threads that are ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/bootstrap_choice.h"
#include "runtime/meeting_place.h"
#include "runtime/real_context.h"
#include "runtime/surroundings.h"

namespace aiacc {

// What the program says of itself; all of it may be missing.
struct Given {
  std::optional<GivenIdentity> identity;
  std::optional<Store> store;
  std::string job;
};

// This process's one rank of its job: asks the provider that bootstrap_choice.h names. `version` is the library's: ranks of
// a job agree on it.
std::shared_ptr<RealContext> join_job(const Given& given, const Surroundings& surroundings, const RuntimeConfig& config,
                                      const std::string& version);

// `ranks` contexts that are a world of their own inside this process, in the order of ranks.
std::vector<std::shared_ptr<RealContext>> make_local_world(int ranks, const RuntimeConfig& config);

}  // namespace aiacc

// Creates the contexts of a real process: by joining the job that started it, or as threads that are ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/bootstrap/bootstrap_choice.h"
#include "runtime/environment_snapshot.h"
#include "runtime/real_context.h"
#include "runtime/rendezvous/rendezvous_endpoint.h"

namespace aiacc {

// Identity and means of bootstrap given by the program; all optional.
struct Given {
  std::optional<GivenIdentity> identity;
  std::optional<Store> store;
  std::string job;
};

// Creates this process's rank of its job with the provider that bootstrap_choice.h chooses. `version` is the library's;
// ranks of a job must agree on it.
std::shared_ptr<RealContext> join_job(const Given& given, const EnvironmentSnapshot& environment,
                                      const RuntimeConfig& config, const std::string& version);

// Creates `ranks` contexts that form a world inside this process, in rank order.
std::vector<std::shared_ptr<RealContext>> make_local_world(int ranks, const RuntimeConfig& config);

}  // namespace aiacc

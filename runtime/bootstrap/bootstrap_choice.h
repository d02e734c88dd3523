// Chooses the bootstrap provider of a context: by explicit arguments, AIACC_AGENT, AIACC_RENDEZVOUS, variables of other
// launchers, or, without any of these, a world of one (docs/architecture.md, "How a rank starts"). If the environment
// indicates several ranks and there is no rendezvous, that is an error that names the variable and the remedy; N ranks
// never silently become N jobs of one rank.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace aiacc {

// Returns the value of an environment variable, or nullopt. The caller supplies it, so that the choice can be tested.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Rank and size as given by the program.
struct GivenIdentity {
  int rank = 0;
  int size = 0;
};

// Means of bootstrap given by the program.
struct GivenMeans {
  bool store = false;
  std::string job;
};

struct BootstrapChoice {
  enum class Kind { kSingleton, kAgent, kRendezvous, kStore };
  Kind kind = Kind::kSingleton;
  std::string agent;  // address of kAgent: "local:NAME"
  int rank = -1;      // this process's claim; the agent, or rank 0, checks it
  int size = -1;
  bool several_hosts = false;  // of kAgent: not all ranks are, or will be, on this host
  std::string rendezvous;      // of kRendezvous: "host:port"
  std::string secret_file;     // of kRendezvous
  std::string job;             // of kRendezvous and kStore: distinguishes jobs that share an endpoint
};

// Throws kInvalidArgument or kInvalidState with the sentence.
BootstrapChoice choose_bootstrap(const std::optional<GivenIdentity>& given, const GivenMeans& means,
                                 const EnvironmentLookup& environment);
inline BootstrapChoice choose_bootstrap(const std::optional<GivenIdentity>& given,
                                        const EnvironmentLookup& environment) {
  return choose_bootstrap(given, {}, environment);
}

}  // namespace aiacc

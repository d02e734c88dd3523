// Which bootstrap provider a context asks: from explicit arguments, AIACC_AGENT, AIACC_RENDEZVOUS, what other launchers
// leave in the environment, or nothing at all (docs/architecture.md, "A rank's birth"). A signal for more than one rank with
// no way to meet is an error that names the variable and the cure: never N jobs of one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace aiacc {

// The value of a variable of the environment, or nothing. The caller brings it, so that the choice can be tested.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// What the program itself said.
struct GivenIdentity {
  int rank = 0;
  int size = 0;
};

// What the program itself brought, besides.
struct GivenMeans {
  bool store = false;
  std::string job;
};

struct BootstrapChoice {
  enum class Kind { kSingleton, kAgent, kRendezvous, kStore };
  Kind kind = Kind::kSingleton;
  std::string agent;  // address of kAgent: "local:NAME"
  int rank = -1;      // what we say to be; the agent, or rank 0, checks it
  int size = -1;
  bool several_hosts = false;  // of kAgent: not all of them are on this one
  std::string rendezvous;      // of kRendezvous: "host:port"
  std::string secret_file;     // of kRendezvous
  std::string job;             // of kRendezvous and kStore: tells apart those that meet at one place
};

// Throws kInvalidArgument or kInvalidState with the sentence.
BootstrapChoice choose_bootstrap(const std::optional<GivenIdentity>& given, const GivenMeans& means,
                                 const EnvironmentLookup& environment);
inline BootstrapChoice choose_bootstrap(const std::optional<GivenIdentity>& given,
                                        const EnvironmentLookup& environment) {
  return choose_bootstrap(given, {}, environment);
}

}  // namespace aiacc

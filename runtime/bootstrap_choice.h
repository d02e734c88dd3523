// Which bootstrap provider a context asks: from explicit arguments, AIACC_AGENT, AIACC_RENDEZVOUS, what other launchers
// leave in the environment, or nothing at all (docs/architecture.md, "A rank's birth"). A signal for more than one rank with no way to
// meet is an error that names the variable and the cure: never N jobs of one.
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

struct BootstrapChoice {
  enum class Kind { kSingleton, kAgent };
  Kind kind = Kind::kSingleton;
  std::string agent;  // address of kAgent: "local:NAME"
  int rank = -1;      // of kAgent: what we say to be; the agent checks it
  int size = -1;
  bool several_hosts = false;  // not all of them are on this one
};

// Throws kInvalidArgument or kInvalidState with the sentence.
BootstrapChoice choose_bootstrap(const std::optional<GivenIdentity>& given, const EnvironmentLookup& environment);

}  // namespace aiacc

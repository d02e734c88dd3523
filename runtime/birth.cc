#include "runtime/birth.h"

#include <unistd.h>

#include <string>

#include "base/io/limits.h"
#include "runtime/bootstrap_agent.h"
#include "runtime/bootstrap_local.h"
#include "runtime/bootstrap_singleton.h"

namespace aiacc {
namespace {

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

std::unique_ptr<Bootstrap> make_singleton(io::RealLoop&) { return std::make_unique<SingletonBootstrap>(host_name()); }

// Once a job: all ranks have the same environment as a rule.
void warn_of(const Config& settings, Logger& log) {
  for (const std::string& sentence : settings.warnings()) AIACC_LOG(log, kCore, kWarn, "{}", sentence);
}

}  // namespace

std::shared_ptr<RealContext> join_job(const std::optional<GivenIdentity>& given, const Surroundings& surroundings,
                                      const RuntimeConfig& config, const std::string& version) {
  const BootstrapChoice choice =
      choose_bootstrap(given, [&](const std::string& name) { return surroundings.variable(name); });
  std::shared_ptr<RealContext> context;
  if (choice.kind == BootstrapChoice::Kind::kSingleton) {
    context = RealContext::join(config, make_singleton);
  } else {
    io::raise_descriptor_limit();
    context = RealContext::join(config, [&](io::RealLoop& loop) {
      return std::make_unique<AgentBootstrap>(loop, choice.agent, choice.rank, choice.size, choice.several_hosts,
                                              version);
    });
  }
  if (context->world().rank() == 0) warn_of(surroundings.settings(), context->log());
  return context;
}

std::vector<std::shared_ptr<RealContext>> make_local_world(int ranks, const RuntimeConfig& config) {
  if (ranks == 1) return RealContext::join_all(config, {make_singleton});
  io::raise_descriptor_limit();
  const std::shared_ptr<LocalWorld> world = LocalWorld::make(ranks, config.slice_bytes, host_name());
  std::vector<RealContext::MakeBootstrap> providers;
  for (int rank = 0; rank < ranks; ++rank) {
    providers.push_back(
        [world, rank](io::RealLoop& loop) { return std::make_unique<LocalBootstrap>(loop, world, rank); });
  }
  return RealContext::join_all(config, providers);
}

}  // namespace aiacc

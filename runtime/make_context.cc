#include "runtime/make_context.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>

#include "base/io/congestion.h"
#include "base/io/host_addresses.h"
#include "base/io/limits.h"
#include "base/io/real_clock.h"
#include "base/log.h"
#include "base/wire/secret_file.h"
#include "runtime/bootstrap/algorithm_table_file.h"
#include "runtime/bootstrap/bootstrap_agent.h"
#include "runtime/bootstrap/bootstrap_local.h"
#include "runtime/bootstrap/bootstrap_rendezvous.h"
#include "runtime/bootstrap/bootstrap_singleton.h"
#include "runtime/group/group.h"

namespace aiacc {
namespace {

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

std::unique_ptr<Bootstrap> make_singleton(io::RealLoop&) { return std::make_unique<SingletonBootstrap>(host_name()); }

// Rank 0 warns for the whole job, because all ranks usually have the same environment.
void warn_of(const Config& settings, Logger& log) {
  for (const std::string& sentence : settings.warnings()) AIACC_LOG(log, kCore, kWarn, "{}", sentence);
  const std::string ignored = settings.without_effect_sentence();
  if (!ignored.empty()) AIACC_LOG(log, kCore, kWarn, "{}", ignored);
}

// `table`: empty but on rank 0.
NetworkSettings network_of(const RuntimeConfig& config, const std::string& table) {
  return {.tcp = {.silence_limit = config.lease,
                  .congestion = io::Congestion(config.tcp_congestion),
                  .streams = config.tcp_streams,
                  .marks = config.marks},
          .network = config.network,
          .algorithms = config.algorithms.text(),
          .algorithm_table = table,
          .protection = config.encryption != Encryption::kNone,
          .ucx = config.ucx,
          .ofi = config.ofi,
          .failback = config.failback};
}

RealContext::MakeBootstrap make_agents(const BootstrapChoice& choice, const RuntimeConfig& config,
                                       const std::string& table, const std::string& version) {
  const NetworkSettings network = network_of(config, table);
  return [=](io::RealLoop& loop) {
    return std::make_unique<AgentBootstrap>(loop, choice.agent, choice.rank, choice.size, choice.several_hosts, version,
                                            network);
  };
}

std::unique_ptr<RendezvousEndpoint> endpoint_of(const BootstrapChoice& choice, const Given& given) {
  if (choice.kind == BootstrapChoice::Kind::kStore) {
    return std::make_unique<StoreEndpoint>(*given.store, choice.job);
  }
  return std::make_unique<AddressEndpoint>(io::HostPort::parse("AIACC_RENDEZVOUS", choice.rendezvous),
                                           wire::read_secret_file("AIACC_SECRET_FILE", choice.secret_file));
}

RealContext::MakeBootstrap make_rendezvous(const BootstrapChoice& choice, const Given& given,
                                           const RuntimeConfig& config, const std::string& table,
                                           const std::string& version) {
  RendezvousBootstrap::Settings settings;
  settings.rank = choice.rank;
  settings.size = choice.size;
  settings.job = choice.job;
  settings.version = version;
  settings.host_name = host_name();
  settings.addresses = io::host_addresses({});
  settings.limit = config.init_timeout;
  settings.network = network_of(config, table);
  settings.slice_bytes = config.slice_bytes;
  const std::string who = fmt::format("rank {} on {}", settings.rank, settings.host_name);
  settings.tell = [levels = config.log, who](const std::string& sentence) {
    io::RealClock clock;
    Logger log(levels, who, clock);
    AIACC_LOG(log, kBootstrap, kWarn, "{}", sentence);
  };
  return [=](io::RealLoop& loop) {
    return std::make_unique<RendezvousBootstrap>(loop, endpoint_of(choice, given), settings);
  };
}

// The next world comes together whenever one is lost before it is open; each gets the time-out of its own.
std::shared_ptr<RealContext> join_agent(const RuntimeConfig& config, const RealContext::MakeBootstrap& make_bootstrap) {
  for (;;) {
    try {
      return RealContext::join(config, make_bootstrap);
    } catch (const WorldLost&) {
    }
  }
}

}  // namespace

std::shared_ptr<RealContext> join_job(const Given& given, const EnvironmentSnapshot& environment,
                                      const RuntimeConfig& config, const std::string& version) {
  io::check_congestion(config.tcp_congestion);  // also on one host: an invalid value is always reported
  const GivenMeans means{given.store.has_value(), given.job};
  const BootstrapChoice choice =
      choose_bootstrap(given.identity, means, [&](const std::string& name) { return environment.variable(name); });
  const AlgorithmTableFile table = choice.rank == 0 ? read_algorithm_table(config) : AlgorithmTableFile();
  std::shared_ptr<RealContext> context;
  if (choice.kind == BootstrapChoice::Kind::kSingleton) {
    context = RealContext::join(config, make_singleton);
  } else {
    io::raise_descriptor_limit();
    context = choice.kind == BootstrapChoice::Kind::kAgent
                  ? join_agent(config, make_agents(choice, config, table.text, version))
                  : RealContext::join(config, make_rendezvous(choice, given, config, table.text, version));
  }
  if (context->world().rank() == 0) warn_of(environment.settings(), context->log());
  if (!table.complaint.empty()) AIACC_LOG(context->log(), kCollective, kWarn, "{}", table.complaint);
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

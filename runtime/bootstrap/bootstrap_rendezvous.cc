#include "runtime/bootstrap/bootstrap_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/io/resolve.h"
#include "runtime/bootstrap/algorithm_table_file.h"
#include "runtime/bootstrap/data_port.h"
#include "runtime/rendezvous/rendezvous_client.h"
#include "runtime/rendezvous/rendezvous_server.h"

namespace aiacc {

RendezvousBootstrap::RendezvousBootstrap(io::RealLoop& loop, std::unique_ptr<RendezvousEndpoint> endpoint,
                                         Settings settings)
    : loop_(loop),
      net_(loop, settings.network.tcp),
      processes_(loop),
      endpoint_(std::move(endpoint)),
      settings_(std::move(settings)) {}

RendezvousBootstrap::~RendezvousBootstrap() = default;

wire::Arrive RendezvousBootstrap::introduction() const {
  wire::Arrive me;
  me.version = settings_.version;
  me.job = settings_.job;
  me.rank = settings_.rank;
  me.size = settings_.size;
  me.host_name = settings_.host_name;
  me.addresses = settings_.addresses;
  me.ports = networks_.addresses();
  me.process = processes_.own_name();
  if (shm_discovery_ != nullptr) me.local_name = shm_discovery_->name();
  return me;
}

Task<BootstrapResult> RendezvousBootstrap::join(Stop& stop) {
  stop.throw_if_requested();
  networks_ = networks_of(loop_, net_, entropy_, listen_for_peers(net_), settings_.network);
  if (settings_.share_memory) shm_discovery_ = std::make_unique<ShmDomainDiscovery>(loop_, settings_.slice_bytes);
  if (settings_.rank == 0) {
    RendezvousServer::Listeners listeners;
    listeners.endpoint = endpoint_->open(net_);
    const io::Address endpoint = listeners.endpoint->address();
    listeners.back = listen_beside(net_, endpoint);
    wire::Arrive me = introduction();
    if (io::is_loopback(endpoint.name))
      me.addresses.insert(me.addresses.begin(), endpoint.name);  // listeners.back is there
    rendezvous_ = std::make_unique<RendezvousServer>(loop_, net_, std::move(listeners), endpoint_->secret(), entropy_,
                                                     std::move(me), endpoint_->name(), settings_.limit);
  } else {
    rendezvous_ =
        std::make_unique<RendezvousClient>(loop_, net_, *endpoint_, entropy_, introduction(), settings_.limit);
  }
  const wire::Roster roster = co_await gather(stop);
  std::int32_t first = settings_.rank;
  if (shm_discovery_ != nullptr) first = co_await shm_discovery_->find_first(roster, settings_.rank, stop);
  const std::vector<std::int32_t> firsts = co_await rendezvous_->agree_on_hosts(first, stop);
  rendezvous_->watch_local_peers(processes_, roster, firsts);
  leaves_alone_ = can_leave_alone(roster, firsts);
  std::unique_ptr<HostDomain> host;
  if (shm_discovery_ != nullptr) host = co_await shm_discovery_->share(firsts, stop);
  shm_discovery_.reset();
  co_return bootstrapped_of(roster, firsts, std::move(host));
}

// Rank 0 listens whether or not its host knows the endpoint's name, and says so when others do not come.
Task<wire::Roster> RendezvousBootstrap::gather(Stop& stop) {
  const auto with_obstacle = [this](const std::string& sentence) {
    const std::string obstacle = settings_.rank == 0 ? endpoint_->obstacle() : std::string();
    return obstacle.empty() ? sentence : fmt::format("{}; {}", sentence, obstacle);
  };
  const TellUser tell = [&](const std::string& sentence) { settings_.tell(with_obstacle(sentence)); };
  try {
    co_return co_await gather_and_tell(loop_, *rendezvous_, tell, stop);
  } catch (const Error& error) {
    if (error.code() != Code::kTimeout) throw;
    throw Error(error.code(), with_obstacle(error.message()), error.peer());
  }
}

BootstrapResult RendezvousBootstrap::bootstrapped_of(const wire::Roster& roster,
                                                     const std::vector<std::int32_t>& firsts,
                                                     std::unique_ptr<HostDomain> host) {
  BootstrapResult bootstrapped;
  bootstrapped.rank = settings_.rank;
  bootstrapped.job_name = settings_.job.empty() ? fmt::format("{:016x}", roster.job) : settings_.job;
  bootstrapped.host_name = settings_.host_name;
  bootstrapped.host = std::move(host);
  bootstrapped.remarks = rendezvous_->remarks();

  JobPlaces places;
  places.secret = wire::Secret::from(roster.secret);
  std::vector<std::uint32_t> host_of(firsts.size());
  std::vector<bool> near;  // by host: a rank of it reached rank 0 by loopback, so it is rank 0's machine
  std::vector<Member> members;
  for (std::size_t rank = 0; rank < firsts.size(); ++rank) {
    const wire::RosterEntry& entry = roster.ranks[rank];
    const auto first = static_cast<std::size_t>(firsts[rank]);
    if (first == rank) {
      host_of[rank] = static_cast<std::uint32_t>(places.hosts.size());
      places.hosts.push_back({entry.host_name, entry.addresses});
      near.push_back(false);
    } else {
      host_of[rank] = host_of[first];
    }
    near[host_of[rank]] = near[host_of[rank]] || entry.near;
    places.ports.push_back(entry.ports);
    members.push_back({static_cast<std::uint32_t>(rank), 0, host_of[rank]});
  }
  const std::uint32_t mine = host_of[static_cast<std::size_t>(settings_.rank)];
  for (std::size_t each = 0; each < places.hosts.size(); ++each) {
    bootstrapped.host_names.push_back(places.hosts[each].name);
    if (near[mine] && near[each]) {
      places.hosts[each].addresses.insert(places.hosts[each].addresses.end(), {"127.0.0.1", "::1"});
    }
  }
  bootstrapped.world = std::make_shared<const View>(roster.job, 0, 0, 0, std::move(members));
  if (bootstrapped.world->hosts() > 1) {
    bootstrapped.port = open_data_port(networks_, *bootstrapped.world, settings_.rank, places, kRefusedLimit);
    bootstrapped.transport = networks_.opened_transport();
    bootstrapped.network = networks_.opened();
    take_algorithm_table(networks_, bootstrapped);
  }
  networks_ = {};
  return bootstrapped;
}

}  // namespace aiacc

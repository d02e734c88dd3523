#include "runtime/bootstrap_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/data_port.h"
#include "runtime/meeting_guest.h"
#include "runtime/meeting_host.h"

namespace aiacc {

RendezvousBootstrap::RendezvousBootstrap(io::RealLoop& loop, std::unique_ptr<MeetingPlace> place, Settings settings)
    : loop_(loop),
      net_(loop, settings.tcp),
      processes_(loop),
      place_(std::move(place)),
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
  me.data_port = data_listener_->address().port;
  me.process = processes_.mine();
  if (neighbourhood_ != nullptr) me.local_name = neighbourhood_->name();
  return me;
}

Task<Birth> RendezvousBootstrap::join(Stop& stop) {
  stop.throw_if_requested();
  data_listener_ = listen_for_peers(net_);
  if (settings_.share_memory) neighbourhood_ = std::make_unique<Neighbourhood>(loop_, settings_.slice_bytes);
  if (settings_.rank == 0) {
    MeetingHost::Listeners listeners{place_->open(net_), listen_for_peers(net_)};
    meeting_ = std::make_unique<MeetingHost>(loop_, net_, std::move(listeners), place_->secret(), entropy_,
                                             introduction(), place_->name(), settings_.limit);
  } else {
    meeting_ = std::make_unique<MeetingGuest>(loop_, net_, *place_, entropy_, introduction(), settings_.limit);
  }
  const wire::Roster roster = co_await meeting_->gather(stop);
  std::int32_t first = settings_.rank;
  if (neighbourhood_ != nullptr) first = co_await neighbourhood_->find_first(roster, settings_.rank, stop);
  const std::vector<std::int32_t> firsts = co_await meeting_->settle(first, stop);
  meeting_->watch_neighbours(processes_, roster, firsts);
  std::unique_ptr<HostDomain> host;
  if (neighbourhood_ != nullptr) host = co_await neighbourhood_->share(firsts, stop);
  neighbourhood_.reset();
  co_return birth_of(roster, firsts, std::move(host));
}

Birth RendezvousBootstrap::birth_of(const wire::Roster& roster, const std::vector<std::int32_t>& firsts,
                                    std::unique_ptr<HostDomain> host) {
  Birth birth;
  birth.rank = settings_.rank;
  birth.job_name = settings_.job.empty() ? fmt::format("{:016x}", roster.job) : settings_.job;
  birth.host_name = settings_.host_name;
  birth.host = std::move(host);
  birth.remarks = meeting_->remarks();

  JobPlaces places;
  places.secret = wire::Secret::from(roster.secret);
  std::vector<std::uint32_t> host_of(firsts.size());
  std::vector<bool> near;  // by host: rank 0's machine, as a loopback connection proved
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
    places.ports.push_back(entry.data_port);
    members.push_back({static_cast<std::uint32_t>(rank), 0, host_of[rank]});
  }
  const std::uint32_t mine = host_of[static_cast<std::size_t>(settings_.rank)];
  for (std::size_t each = 0; each < places.hosts.size(); ++each) {
    birth.host_names.push_back(places.hosts[each].name);
    if (near[mine] && near[each]) {
      places.hosts[each].addresses.insert(places.hosts[each].addresses.end(), {"127.0.0.1", "::1"});
    }
  }
  birth.world = std::make_shared<const View>(roster.job, 0, 0, 0, std::move(members));
  if (birth.world->hosts() > 1) {
    birth.port = open_data_port(loop_, net_, std::move(data_listener_), entropy_, *birth.world, settings_.rank, places,
                                kReachLimit);
  }
  data_listener_.reset();
  return birth;
}

}  // namespace aiacc

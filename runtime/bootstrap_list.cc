#include "runtime/bootstrap_list.h"

#include <utility>

#include "transports/host/memfd_domain.h"

namespace aiacc {

Task<Birth> ListBootstrap::join(Stop& stop) {
  stop.throw_if_requested();
  const View& world = *me_.world;
  Birth birth;
  birth.rank = me_.rank;
  birth.world = me_.world;
  birth.job_name = me_.job_name;
  for (const JobPlaces::Host& host : me_.places.hosts) birth.host_names.push_back(host.name);
  birth.host_name = birth.host_names.at(world.member(me_.rank).host);
  if (me_.segment != nullptr) {
    birth.host = std::make_unique<MemfdDomain>(me_.segment, world.place_of(me_.rank), loop_);
  }
  if (world.hosts() > 1) {
    birth.port =
        open_data_port(loop_, net_, std::move(me_.listener), entropy_, world, me_.rank, me_.places, kReachLimit);
  }
  co_return birth;
}

Task<void> ListBootstrap::leave(Stop&) { co_return; }

}  // namespace aiacc

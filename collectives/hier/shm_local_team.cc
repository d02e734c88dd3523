#include "collectives/hier/shm_local_team.h"

#include "collectives/intra/reduce_extents.h"
#include "collectives/intra/select.h"
#include "collectives/intra/spread_extents.h"

namespace aiacc::hier {
namespace {

// A phase that is not an operation of the on-host team by itself: as intra::run_in_turn() does for those.
Task<void> run_whole(IntraTeam& team, Task<void> phase) {
  const std::uint64_t number = team.next_number();
  try {
    co_await std::move(phase);
    team.require_whole(number);
  } catch (...) {
    team.fail(number);
    throw;
  }
}

}  // namespace

ShmLocalTeam::Phases::Phases(HostDomain& domain, const Team& team, const std::vector<int>& domain_ranks,
                             std::uint32_t index)
    : intra_(domain, team.view, team.rank, domain_ranks, index),
      team_{team.view, team.rank, team.loop, team.compute, &intra_} {}

// The same phase as an operation of this host's team.
Operation ShmLocalTeam::Phases::here(const Operation& phase) noexcept {
  return {team_, phase.call, phase.sequence, phase.stop, phase.send, phase.recv, phase.part};
}

Task<void> ShmLocalTeam::Phases::reduce_scatter(Operation& phase, std::span<const intra::Extents> owners, Buffer into) {
  Operation op = here(phase);
  co_await run_whole(intra_, intra::reduce_extents(op, owners, into));
}

Task<void> ShmLocalTeam::Phases::exchange(Operation& phase) {
  Operation op = here(phase);
  co_await intra::run_in_turn(op);
}

Task<void> ShmLocalTeam::Phases::all_gather(Operation& phase, std::span<const intra::Extents> owners) {
  Operation op = here(phase);
  co_await run_whole(intra_, intra::spread_extents(op, owners));
}

ShmLocalTeam::ShmLocalTeam(HostDomain& domain, const Team& team, const std::vector<int>& domain_ranks) {
  for (std::uint32_t index = 0; index < kOverlapping; ++index) phases_.emplace_back(domain, team, domain_ranks, index);
}

Task<void> ShmLocalTeam::open(Stop& stop) {
  for (Phases& phases : phases_) co_await phases.intra().open(stop);
}

void ShmLocalTeam::set_closed() noexcept {
  for (Phases& phases : phases_) phases.intra().set_closed();
}

}  // namespace aiacc::hier

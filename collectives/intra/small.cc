#include "collectives/intra/small.h"

#include "base/cpu_relax.h"
#include "collectives/intra/small_call.h"

namespace aiacc::intra {
namespace {

// Whether all members arrive soon and agree. A member waits also if it needs no data, as the root of a broadcast: otherwise it
// would learn of a mismatch too late or never.
bool all_arrive(IntraTeam& team, std::uint64_t number, std::size_t bytes, SmallWait wait) noexcept {
  const int spins = team.patience().spins;
  const int most = spins + (wait == SmallWait::kYieldsToo ? team.patience().yields : 0);
  int waits = 0;
  for (int member = 0; member < team.size(); ++member) {
    while (!team.has_arrived(member, number)) {
      if (++waits > most) return false;
      team.prefetch_payload(member, number, bytes);
      waits <= spins ? cpu_relax() : yield_core();
    }
    if (bytes > IntraTeam::kInlineBytes && member != team.me()) team.prefetch_staged(member, number, bytes);
  }
  return team.agree(number);
}

}  // namespace

Small try_small(IntraTeam& team, const Call& call, const std::byte* send, std::byte* recv, SmallWait wait) noexcept {
  if (!team.turns().free() || team.has_begun()) return Small::kNotServed;
  const std::size_t bytes = SmallCall::bytes_if_served(team, call);
  if (bytes == kNotOneShot) return Small::kNotServed;
  SmallCall small(team, call, bytes);
  small.arrive(send);
  if (!all_arrive(team, small.number(), bytes, wait)) {
    team.set_begun(small.number());
    return Small::kBegun;
  }
  team.prefetch_next_arrival(bytes);
  small.take(recv);
  return Small::kDone;
}

}  // namespace aiacc::intra

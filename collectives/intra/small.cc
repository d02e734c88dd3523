#include "collectives/intra/small.h"

#include "base/cpu_relax.h"
#include "collectives/intra/small_call.h"

namespace aiacc::intra {
namespace {

class Waits {
 public:
  Waits(const IntraTeam& team, SmallWait wait) noexcept
      : spins_(team.patience().spins), most_(spins_ + (wait == SmallWait::kYieldsToo ? team.patience().yields : 0)) {}
  // False: it has waited long enough.
  bool wait() noexcept {
    if (++waits_ > most_) return false;
    waits_ <= spins_ ? cpu_relax() : yield_core();
    return true;
  }

 private:
  const int spins_;
  const int most_;
  int waits_ = 0;
};

bool all_arrive(const IntraTeam& team, const SmallCall& small, std::size_t bytes, Waits& waits) noexcept {
  for (int member = small.awaits(); member < team.size(); member = small.awaits(member)) {
    team.prefetch_payload(member, small.number(), bytes);
    if (!waits.wait()) return false;
  }
  return true;
}

}  // namespace

Small try_small(IntraTeam& team, const Call& call, const std::byte* send, std::byte* recv, SmallWait wait) noexcept {
  if (!team.turns().free() || team.has_begun()) return Small::kNotServed;
  const std::size_t bytes = SmallCall::bytes_if_served(team, call);
  if (bytes == kNotOneShot) return Small::kNotServed;
  Waits waits(team, wait);
  while (!team.has_room()) {
    if (!waits.wait()) return Small::kNotServed;
  }
  SmallCall small(team, call, bytes);
  small.arrive(send);
  if (!all_arrive(team, small, bytes, waits) || !small.agree()) {
    team.set_begun(small.number());
    return Small::kBegun;
  }
  team.prefetch_next_arrival(bytes);
  small.take(recv);
  return Small::kDone;
}

}  // namespace aiacc::intra

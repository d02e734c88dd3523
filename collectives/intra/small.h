// The fast path for small calls: no coroutine, no allocation, no look-up. A contribution of at most a cache line is part of the
// arrival line; a larger one, up to one_shot_bytes(), is in the member's staging memory, once a call of one_shot() has mapped that of
// all members. So a member that sees all arrivals has all data. Stores go only into the caller's own control lines and staging
// memory, so the fence is not involved.
//
// It is a second implementation of the protocol of one_shot.h: members may mix both in one operation, and the results
// have the same bits.
#pragma once

#include "base/cpu_relax.h"
#include "collectives/intra/small_call.h"

namespace aiacc::intra {

enum class Small : std::uint8_t {
  kNotServed,  // nothing was done: use run()
  kDone,
  kBegun,  // this member's arrival is published, but a member is late or disagrees: run() of the same call continues
};

// How it waits for late members. A caller that waits for the result anyway may give up its core to them; one that will do something
// else instead may not, because it could get the core back much later.
enum class SmallWait : std::uint8_t { kPolls, kYieldsToo };

// How long it has waited.
class SmallWaits {
 public:
  SmallWaits(const IntraTeam& team, SmallWait wait) noexcept
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

// Serves every collective that one_shot.h serves, if the whole group is on this host and all its other operations are
// complete. Waits only briefly. Buffers are as in Operation; a broadcast uses `send` of the root and `recv` of all
// others. Call on the thread that drives the team's loop. It calls `meanwhile` when this member has arrived, before it looks whether
// others have: what is done there costs no time as long as they have not.
template <class From, class To, class Meanwhile>
Small try_small_call(IntraTeam& team, const Call& call, std::size_t bytes, From&& from, To&& to, SmallWait wait,
                     Meanwhile&& meanwhile) noexcept {
  SmallWaits waits(team, wait);
  while (!team.has_room()) {
    if (!waits.wait()) return Small::kNotServed;
  }
  SmallCall small(team, call, bytes);
  small.arrive(from);
  meanwhile();
  bool all_arrived = true;
  for (int member = small.awaits(); all_arrived && member < team.size(); member = small.awaits(member)) {
    team.prefetch_payload(member, small.number(), bytes);
    all_arrived = waits.wait();
  }
  if (!all_arrived || !small.agree()) {
    team.set_begun(small.number());
    return Small::kBegun;
  }
  team.prefetch_next_arrival(bytes);
  small.take(to);
  return Small::kDone;
}
template <class Meanwhile>
Small try_small(IntraTeam& team, const Call& call, const std::byte* send, std::byte* recv, SmallWait wait,
                Meanwhile&& meanwhile) noexcept {
  if (!team.turns().free() || team.has_begun()) return Small::kNotServed;
  const std::size_t bytes = SmallCall::bytes_if_served(team, call);
  if (bytes == kNotOneShot) return Small::kNotServed;
  return try_small_call(team, call, bytes, send, recv, wait, meanwhile);
}
// The same for an allreduce of more than a line, whose caller writes and reads in place. If it is kBegun, `caller` has written, and run()
// of the same call has its result elsewhere.
template <class Meanwhile>
Small try_small(IntraTeam& team, const Call& call, InPlace& caller, SmallWait wait, Meanwhile&& meanwhile) noexcept {
  if (!team.turns().free() || team.has_begun()) return Small::kNotServed;
  const std::size_t bytes = SmallCall::bytes_if_served(team, call);
  if (bytes == kNotOneShot || bytes <= IntraTeam::kInlineBytes) return Small::kNotServed;
  return try_small_call(team, call, bytes, caller, caller, wait, meanwhile);
}
inline Small try_small(IntraTeam& team, const Call& call, const std::byte* send, std::byte* recv,
                       SmallWait wait = SmallWait::kPolls) noexcept {
  return try_small(team, call, send, recv, wait, [] {});
}

}  // namespace aiacc::intra

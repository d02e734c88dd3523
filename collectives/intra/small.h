// The fast path for small calls: no coroutine, no allocation, no look-up. A contribution of at most a cache line is part of the
// arrival line; a larger one, up to one_shot_bytes(), is in the member's staging memory, once a call of one_shot() has mapped that of
// all members. So a member that sees all arrivals has all data. Stores go only into the caller's own control lines and staging
// memory, so the fence is not involved.
//
// It is a second implementation of the protocol of one_shot.h: members may mix both in one operation, and the results
// have the same bits.
#pragma once

#include "collectives/intra/intra_team.h"

namespace aiacc::intra {

enum class Small : std::uint8_t {
  kNotServed,  // nothing was done: use run()
  kDone,
  kBegun,  // this member's arrival is published, but a member is late or disagrees: run() of the same call continues
};

// How it waits for late members. A caller that waits for the result anyway may give up its core to them; one that will do something
// else instead may not, because it could get the core back much later.
enum class SmallWait : std::uint8_t { kPolls, kYieldsToo };

// Serves every collective that one_shot.h serves, if the whole group is on this host and all its other operations are
// complete. Waits only briefly. Buffers are as in Operation; a broadcast uses `send` of the root and `recv` of all
// others. Call on the thread that drives the team's loop.
Small try_small(IntraTeam& team, const Call& call, const std::byte* send, std::byte* recv,
                SmallWait wait = SmallWait::kPolls) noexcept;

}  // namespace aiacc::intra

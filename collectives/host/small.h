// The path of calls to which each member contributes at most one cache line: no coroutine, no allocation, no look-up. The
// contribution rides in the arrival line; whoever sees all arrivals has everything. Stores go into the caller's own control
// lines only, so that the fence need not know of it.
//
// It is the second way through one_shot.h, not another protocol: members may mix both in one operation, and the results are
// the same bits.
#pragma once

#include "collectives/host/host_team.h"

namespace aiacc::host {

enum class Small : std::uint8_t {
  kNotServed,  // nothing happened: run() serves the call
  kDone,
  kBegun,  // my arrival is published, but somebody is late or disagrees: run() of the same call goes on with it
};

// Every collective that one_shot.h serves, of a group that is whole on this host and whose other operations are all complete.
// Spins for a moment at most. Buffers are as in Operation; of a broadcast, `send` of the root and `recv` of all others.
// On the thread that drives the team's loop.
Small try_small(HostTeam& team, const Call& call, const std::byte* send, std::byte* recv) noexcept;

}  // namespace aiacc::host

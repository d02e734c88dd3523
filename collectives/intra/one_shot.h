// Small calls: every member writes its contribution where all can read it, arrives, and reads what it needs from all.
// One barrier, (n + 3)S bytes through a core: up to some 16 KiB the second barrier of the other algorithms costs more.
//
// A contribution of at most 64 bytes is part of the arrival line itself; a larger one is in the member's staging
// memory, in a ring of places for the same reason as the ring of arrival lines (collectives/intra/intra_team.h).
//
// Not even that barrier in a call with a root: the root of a broadcast or scatter, and the others in a reduce or gather, have done
// their part when they have arrived. They go on, and others come for it later. A root that waited would need each of the others to run
// in each call, which costs a change of processes if they are more than the cores.
#pragma once

#include "collectives/intra/arrive.h"

namespace aiacc::intra {

// The most bytes that a member (for broadcast and scatter: the root) contributes; kNotOneShot if members do not know
// the others' lengths.
inline constexpr std::size_t kNotOneShot = std::size_t(-1);
std::size_t contribution_bytes(const Call& call, int members) noexcept;
// The largest contribution of a call that one_shot() and small.h serve. Up to this size: one barrier and (n + 3)S bytes of traffic;
// above it: two barriers and 2S to 5S. Measured with bench/host on 2 and 4 ranks on 2 cores of an EPYC, at 16 KiB: one_shot takes
// between 0.25 and 0.8 of the time for shared buffers, but 1.1 for an allreduce of 2 ranks, and between 0.13 and 0.5 for private ones.
// Above, it moves more bytes than others do from shared buffers. Records may fill a place (SyncBN's moments, bench/syncbn). Of more than
// 4 ranks the sum of all contributions is what counts where each member reads all of each.
std::size_t one_shot_bytes(const Call& call, int members) noexcept;
// Whether a member contributes anything.
bool contributes(const Call& call, bool is_root) noexcept;
// Whose arrival a member awaits before its part of the call is done.
enum class Awaited : std::uint8_t { kAll, kRoot, kNobody };
// `staged`: contributions are in staging memory. All wait for all in the first such call, so that each may map that memory then.
inline Awaited awaited_in(const IntraTeam& team, const Call& call, bool is_root, bool staged) noexcept {
  if (!team.runs_ahead() || (staged && !team.staging_is_mapped())) return Awaited::kAll;
  switch (call.kind) {
    case Collective::kBroadcast:
    case Collective::kScatter: return is_root ? Awaited::kNobody : Awaited::kRoot;
    case Collective::kReduce:
    case Collective::kGather: return is_root ? Awaited::kAll : Awaited::kNobody;
    default: return Awaited::kAll;
  }
}

// `begun`: the number of the arrival, if the fast path has already published it.
Task<void> one_shot(Operation& op, std::optional<std::uint64_t> begun);

}  // namespace aiacc::intra

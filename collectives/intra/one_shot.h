// Small calls: every member writes its contribution where all can read it, arrives, and reads what it needs from all.
// One barrier, (n + 3)S bytes through a core: below a few KiB the second barrier of the other algorithms costs more.
//
// A contribution of at most 64 bytes is part of the arrival line itself; a larger one is in the member's staging
// memory, in one of two places that alternate for the same reason as the two arrival lines
// (collectives/intra/intra_team.h).
#pragma once

#include "collectives/intra/arrive.h"

namespace aiacc::intra {

// The most bytes that a member (for broadcast and scatter: the root) contributes; kNotOneShot if members do not know
// the others' lengths.
inline constexpr std::size_t kNotOneShot = std::size_t(-1);
std::size_t contribution_bytes(const Call& call, int members) noexcept;
// The largest contribution of a call that one_shot() and small.h serve. Up to this size: one barrier and (n + 3)S bytes of traffic;
// above it: two barriers and 2S to 5S. Measured with bench/host on 2 ranks on 2 cores of an EPYC: at 4 KiB both are equal; at 16 KiB
// one_shot is a third slower for shared buffers and equal for private ones. Records of a user's operator may be twice as long: the moments
// of 128 channels on 4 ranks, and of 256 on 2, take less time so (bench/syncbn).
std::size_t one_shot_bytes(const Call& call, int members) noexcept;
// Whether a member contributes anything.
bool contributes(const Call& call, bool is_root) noexcept;

// `begun`: the number of the arrival, if the fast path has already published it.
Task<void> one_shot(Operation& op, std::optional<std::uint64_t> begun);

}  // namespace aiacc::intra

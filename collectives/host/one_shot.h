// Small calls: everybody leaves its contribution where all can read it, arrives, and takes what it needs from all. One
// meeting, (n + 3)S bytes through a core: below a few KiB the second meeting of the other algorithms costs more.
//
// A contribution of at most 64 bytes rides in the arrival line itself; a larger one lies in the member's staging memory, in
// one of two places by turns, for the reason that there are two arrival lines (collectives/host/host_team.h).
#pragma once

#include "collectives/host/meet.h"

namespace aiacc::host {

// Bytes that each member (of broadcast and scatter: the root) contributes at most; kNotOneShot where members do not know how
// many the others do.
inline constexpr std::size_t kNotOneShot = std::size_t(-1);
std::size_t contribution_bytes(const Call& call, int members) noexcept;
// Whether a member has one.
bool contributes(const Call& call, bool is_root) noexcept;

// `begun`: the number of the arrival if the fast path has published it.
Task<void> one_shot(Operation& op, std::optional<std::uint64_t> begun);

}  // namespace aiacc::host

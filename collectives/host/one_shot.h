// Small calls: everybody leaves its contribution where all can read it, arrives, and takes what it needs from those that have
// it. One meeting at most, (n + 3)S bytes through a core: below a few KiB the second meeting of the other algorithms costs more.
//
// Nobody waits for a member that gives it nothing. The root of a broadcast or scatter goes on at once, and so does whoever
// only gives to the root of a reduce or gather; that somebody else called otherwise is then said by one of its next calls.
//
// A contribution of at most 64 bytes rides in the arrival line itself; a larger one lies in the member's staging memory, in
// one of as many places by turns as there are arrival lines, for the same reason (collectives/host/host_team.h).
#pragma once

#include "collectives/host/meet.h"

namespace aiacc::host {

// Bytes that each member (of broadcast and scatter: the root) contributes at most; kNotOneShot where members do not know how
// many the others do.
inline constexpr std::size_t kNotOneShot = std::size_t(-1);
std::size_t contribution_bytes(const Call& call, int members) noexcept;

// Whose contribution a member needs.
enum class Needs : std::uint8_t { kNobodys, kRoots, kEverybodys };
Needs needs_of(const Call& call, bool is_root) noexcept;
// And whether it has one itself.
bool contributes(const Call& call, bool is_root) noexcept;

// `begun`: the number of the arrival if the fast path has published it.
Task<void> one_shot(Operation& op, std::optional<std::uint64_t> begun);

}  // namespace aiacc::host

// Collectives of groups whose members sit on several hosts, in any placement: which way serves a call.
#pragma once

#include "collectives/operation.h"

namespace aiacc::hosts {

// Up to here one member of each host speaks for it. A message of 16 KiB takes 1.3 µs on a link of 100 Gb/s, beside a latency
// of 5 µs: shards of it would not arrive earlier, and on the host they cost a staged phase instead of one meeting.
inline constexpr std::size_t kLeadersBytes = 16 << 10;
// Bytes of one shard that travel between hosts at once, while the shard's next part is reduced on the hosts and the part
// before is given out: four segments of a ring (net::kSliceBytes) keep a link busy.
inline constexpr std::size_t kSliceBytes = 1 << 20;
// Slices between hosts at once. With two, a link does not wait for the host's phases of the next.
inline constexpr std::size_t kSlicesBetween = 2;

// Shards of a payload of so many bytes.
std::size_t shards_of(const View& view, std::size_t bytes) noexcept;

// Runs a collective, not a send or recv, to its end. After an error no process changes the operation's buffers any more, and
// the group serves no further call.
Task<void> run(Operation& op);

}  // namespace aiacc::hosts

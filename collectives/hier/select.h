// Chooses the algorithm for a collective of a group over several hosts, in any placement.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::hier {

// Up to this size only one member of each host communicates with other hosts. A message of 16 KiB takes 1.3 µs on a
// link of 100 Gb/s, beside a latency of 5 µs: shards of it would not arrive earlier, and on the host they cost a staged
// phase instead of one barrier.
inline constexpr std::size_t kLeadersBytes = 16 << 10;
// Bytes of one shard that travel between hosts at once, while the shard's next slice is reduced on the hosts and the
// previous one is distributed: four segments of a ring (net::kSliceBytes) keep a link busy.
inline constexpr std::size_t kSliceBytes = 1 << 20;
// Slices that are between hosts at once. With two, the link does not idle during the next slice's phases on the host.
inline constexpr std::size_t kSlicesBetween = 2;

// The number of shards for a payload of `bytes`.
std::size_t shards_of(const View& view, std::size_t bytes) noexcept;

// What the phase between hosts looks like to the choice of its algorithm. `whole` is the shape of the call among all ranks, with up
// to `most` on a host; `alike`: all hosts have as many.
inter::Shape shape_between(const inter::Shape& whole, int hosts, std::size_t most, bool alike) noexcept;

// Runs a collective, not a send or recv, to its end. After an error no process changes the operation's buffers any more, and
// the group serves no further call.
Task<void> run(Operation& op);

}  // namespace aiacc::hier

// The shared memory that the agent makes for its host's ranks (transports/host/segment.h).
#pragma once

#include <cstdint>

#include "base/io/clock.h"
#include "launcher/hello_server.h"

namespace aiacc::launcher {

// `slice_bytes` is AIACC_SLICE_BYTES, 0: as much as the host has memory. Throws kOutOfMemory with both numbers, before any
// page is touched.
SharedSegment create_segment(int ranks, std::uint64_t slice_bytes, io::Entropy& entropy);

}  // namespace aiacc::launcher

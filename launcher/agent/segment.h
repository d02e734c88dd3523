// Creates the shared memory of a host's ranks (transports/host/segment.h).
#pragma once

#include <cstdint>

#include "base/io/clock.h"
#include "launcher/agent/hello_server.h"

namespace aiacc::launcher {

// `slice_bytes` is AIACC_SLICE_BYTES; 0 means the size of the host's memory. Throws kOutOfMemory with both numbers,
// before any page is touched.
SharedSegment create_segment(int ranks, std::uint64_t slice_bytes, io::Entropy& entropy);

}  // namespace aiacc::launcher

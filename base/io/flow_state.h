// FlowState: what the system says of bytes under way on a TCP connection. In a file of its own, because glibc's <netinet/tcp.h> lacks
// half of it and cannot be included beside <linux/tcp.h>.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace aiacc::io {

struct FlowState {
  std::uint64_t acknowledged = 0;  // bytes that the other host's system has acknowledged since the connection was made
  std::uint64_t held = 0;          // bytes that were written and are not acknowledged
  Duration least_rtt{};            // of the last minutes; zero: not known
  std::uint64_t sent_again = 0;    // segments, since the connection was made
};

// From TCP_INFO and SIOCOUTQ; all zero for another kind of descriptor.
FlowState flow_state(int descriptor) noexcept;

}  // namespace aiacc::io

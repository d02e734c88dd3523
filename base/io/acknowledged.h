// What the system says of bytes under way on a TCP connection. In a file of its own, because glibc's <netinet/tcp.h> lacks it and
// cannot be included beside <linux/tcp.h>.
#pragma once

#include <cstdint>

namespace aiacc::io {

// Bytes that the other host's system has acknowledged since the connection was made (tcpi_bytes_acked of TCP_INFO); 0 of another
// kind of descriptor.
std::uint64_t acknowledged_bytes(int descriptor) noexcept;

}  // namespace aiacc::io

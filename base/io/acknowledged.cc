#include "base/io/acknowledged.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace aiacc::io {

std::uint64_t acknowledged_bytes(int descriptor) noexcept {
  tcp_info info = {};
  socklen_t bytes = sizeof info;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return 0;
  return info.tcpi_bytes_acked;
}

}  // namespace aiacc::io

#include "base/io/flow_state.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace aiacc::io {

FlowState flow_state(int descriptor) noexcept {
  tcp_info info = {};  // a kernel that knows less leaves the rest at zero
  socklen_t bytes = sizeof info;
  FlowState state;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return state;
  state.acknowledged = info.tcpi_bytes_acked;
  // One more byte is acknowledged than was sent at the end that connected: the connection itself.
  const std::uint64_t sent = info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
  state.held = info.tcpi_notsent_bytes + (sent > info.tcpi_bytes_acked ? sent - info.tcpi_bytes_acked : 0);
  constexpr std::uint32_t kUnknown = ~std::uint32_t{0};
  if (info.tcpi_min_rtt != kUnknown) state.least_rtt = std::chrono::microseconds(info.tcpi_min_rtt);
  return state;
}

}  // namespace aiacc::io

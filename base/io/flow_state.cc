#include "base/io/flow_state.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace aiacc::io {

FlowState flow_state(int descriptor) noexcept {
  tcp_info info = {};  // a kernel that knows less leaves the rest at zero
  socklen_t bytes = sizeof info;
  FlowState state;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return state;
  state.acknowledged = info.tcpi_bytes_acked;
  state.sent_again = info.tcpi_total_retrans;
  // Not from TCP_INFO's count of sent bytes: what this host drops before it leaves is in that twice.
  int queued = 0;
  if (info.tcpi_bytes_acked > 0 && ::ioctl(descriptor, SIOCOUTQ, &queued) == 0 && queued > 0) {
    state.held = static_cast<std::uint64_t>(queued);
  }
  constexpr std::uint32_t kUnknown = ~std::uint32_t{0};
  if (info.tcpi_min_rtt != kUnknown) state.least_rtt = std::chrono::microseconds(info.tcpi_min_rtt);
  return state;
}

}  // namespace aiacc::io

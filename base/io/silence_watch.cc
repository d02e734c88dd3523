#include "base/io/silence_watch.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace aiacc::io {
namespace {

struct Delivery {
  bool unacknowledged = false;   // there are bytes that the other host has not acknowledged
  bool awaits_answer = false;    // the kernel waits for an acknowledgement or a probe
  Duration since_last_answer{};  // time since anything was received
};

// While the other end's window is closed, the kernel sends only probes at increasing intervals, so one missing answer
// means nothing yet.
Delivery delivery_of(int descriptor) noexcept {
  constexpr unsigned kProbes = 2;
  Delivery found;
  int queued = 0;
  tcp_info info = {};
  socklen_t bytes = sizeof info;
  if (::ioctl(descriptor, SIOCOUTQ, &queued) != 0) return found;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return found;
  found.unacknowledged = queued > 0;
  found.awaits_answer = info.tcpi_unacked > 0 || info.tcpi_probes >= kProbes;
  found.since_last_answer = std::chrono::milliseconds(info.tcpi_last_ack_recv);
  return found;
}

}  // namespace

void SilenceWatch::begin() {
  silent_ = 0;
  loop_.arm(*this, after(loop_.now(), interval_));
}

void SilenceWatch::expired() noexcept {
  const Delivery delivery = delivery_of(descriptor_);
  if (!delivery.unacknowledged) return disarm();
  silent_ = delivery.awaits_answer && delivery.since_last_answer >= interval_ ? silent_ + 1 : 0;
  if (silent_ >= kChecks) {
    disarm();
    return owner_.silence_detected();
  }
  loop_.arm(*this, after(loop_.now(), interval_));
}

}  // namespace aiacc::io

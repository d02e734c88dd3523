// Congestion: which algorithm of the kernel decides how fast a TCP socket sends.
//
// BBR (Cardwell et al., "BBR: congestion-based congestion control", ACM Queue 2016) paces. Unless the queueing discipline does
// that for it (fq), it takes a timer for every 64 KiB or less, which between hosts that are close costs more than to send them;
// and every ten seconds a connection sends four packets a round trip for 200 ms, to see the path empty, each at a time of its
// own: a collective waits for the slowest of its connections. So "auto" is the host's choice, but where that is BBR and the
// hosts are near, it is cubic, or reno where this user may not choose that one.
#pragma once

#include <string>

#include "base/fd.h"
#include "base/time.h"

namespace aiacc::io {

class Congestion {
 public:
  // A round trip that is shorter is one within a data centre.
  static constexpr Duration kNear = std::chrono::milliseconds(1);

  // `wanted`: "auto", "system" (the host's choice) or an algorithm's name.
  explicit Congestion(std::string wanted = "auto", Duration near = kNear) : wanted_(std::move(wanted)), near_(near) {}

  // Of a TCP socket that is to connect or to listen; those that it accepts are then like it. Throws kInvalidArgument if the
  // kernel or its administrator has not the algorithm that is wanted by name.
  void prepare(const Fd& socket);
  // One is connected: how near the other end is was measured meanwhile.
  void connected(const Fd& socket) const noexcept;

 private:
  std::string wanted_;
  Duration near_;
  std::string hosts_choice_;  // if another was taken
};

// The algorithm of a TCP socket; empty if the kernel does not say.
std::string congestion_of(int socket);

// Throws what prepare() would.
void check_congestion(const std::string& wanted);

}  // namespace aiacc::io

// Congestion: chooses the kernel's congestion control algorithm of a TCP socket.
//
// BBR (Cardwell et al., "BBR: congestion-based congestion control", ACM Queue 2016) paces. Unless the queueing
// discipline does that for it (fq), it needs a timer for every 64 KiB or less, which between near hosts costs more than
// sending them. Every ten seconds each connection sends only four packets a round trip for 200 ms, to measure the path's
// minimal delay; connections do so at different times, and a collective waits for its slowest one. Therefore "auto" keeps
// the host's choice, except that BBR between near hosts is replaced by cubic, or by reno if this user may not select cubic.
#pragma once

#include <string>

#include "base/fd.h"
#include "base/time.h"

namespace aiacc::io {

class Congestion {
 public:
  // Hosts with a shorter round trip are near: in one data centre.
  static constexpr Duration kNear = std::chrono::milliseconds(1);

  // `wanted`: "auto", "system" (the host's choice) or an algorithm's name.
  explicit Congestion(std::string wanted = "auto", Duration near = kNear) : wanted_(std::move(wanted)), near_(near) {}

  // For a TCP socket before it connects or listens; accepted sockets inherit its algorithm. Throws kInvalidArgument if
  // the kernel does not have the named algorithm, or its administrator does not allow it.
  void prepare(const Fd& socket);
  // For a connected socket, whose round trip time is now known.
  void connected(const Fd& socket) const noexcept;

 private:
  std::string wanted_;
  Duration near_;
  std::string hosts_choice_;  // if it was replaced
};

// The algorithm of a TCP socket; empty if the kernel does not say.
std::string congestion_of(int socket);

// Throws the error that prepare() would throw.
void check_congestion(const std::string& wanted);

}  // namespace aiacc::io

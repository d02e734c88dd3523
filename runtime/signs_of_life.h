// Whether a process of another host is still there, although a connection to it broke. Its kernel answers for it, also while
// it computes or is stopped: a port on which nobody listens is the end of the process that listened there; a connection that
// stands shows that it lives; and a host that gives no answer at all for kReturnLimit is lost. (A connection that broke for
// silence has waited for AIACC_LEASE already.)
#pragma once

#include <memory>
#include <string>

#include "base/io/net.h"
#include "base/task/task.h"
#include "base/time.h"

namespace aiacc {

// Whoever lost its connection has so long to be back, or its host to give a sign of life.
inline constexpr Duration kReturnLimit = std::chrono::seconds(5);
inline constexpr Duration kConnectLimit = std::chrono::seconds(3);  // of one address

// A connection to `address` within kConnectLimit; throws as Net::connect() does.
Task<std::unique_ptr<io::Stream>> connect_soon(Loop& loop, io::Net& net, io::Address address, Stop& stop);

// What a series of attempts to reach a port has found.
class SignsOfLife {
 public:
  SignsOfLife(Loop& loop, io::Address address) : loop_(loop), address_(std::move(address)), seen_(loop.now()) {}

  const io::Address& address() const noexcept { return address_; }
  void seen() noexcept { seen_ = loop_.now(); }
  // After an attempt that ended with the exception in flight: why the process counts as gone, or "" while it does not.
  std::string verdict() const;
  // Between two attempts.
  Task<void> pause(Stop& stop);

 private:
  Loop& loop_;
  io::Address address_;
  Instant seen_;
  Duration pause_ = std::chrono::milliseconds(10);
};

// Returns when the process that listens at `address` is gone, with how that was seen.
Task<std::string> watch_for_the_end(Loop& loop, io::Net& net, io::Address address, Stop& stop);

}  // namespace aiacc

// How a rank that lost its connection to rank 0 comes back to it (docs/wire-protocol.md, "Coming back").
#pragma once

#include <memory>

#include "runtime/meeting_call.h"

namespace aiacc {

class WayBack {
 public:
  // `address` is where rank 0 is found again; the caller's secret and job are the roster's.
  WayBack(const MeetingCaller& caller, io::Address address) : caller_(caller), address_(std::move(address)) {}

  // A new connection, after as long as rank 0 lives and needs. Throws kPeerFailed with how it was seen that rank 0 is gone.
  Task<std::unique_ptr<wire::SecureChannel>> go(Stop& stop);

 private:
  const MeetingCaller caller_;
  io::Address address_;
};

}  // namespace aiacc

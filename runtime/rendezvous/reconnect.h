// Reconnect: how a rank that lost its connection to rank 0 makes a new one (docs/wire-protocol.md, "Reconnecting").
#pragma once

#include <memory>

#include "runtime/rendezvous/rendezvous_dial.h"
#include "runtime/watch/liveness_probe.h"

namespace aiacc {

class Reconnect {
 public:
  // `address` is rank 0's address for reconnecting; the dialer's secret and job are those of the roster.
  Reconnect(const RendezvousDialer& dialer, io::Address address) : dialer_(dialer), address_(std::move(address)) {}

  // Returns a new connection; waits for as long as rank 0 lives, or may live where it cannot be reached. Throws
  // kPeerFailed with the evidence that rank 0 is gone.
  Task<std::unique_ptr<wire::SecureChannel>> go(LivenessProbe::Unreachable unreachable, Stop& stop);

 private:
  const RendezvousDialer dialer_;
  io::Address address_;
};

}  // namespace aiacc

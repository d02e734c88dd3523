#include "runtime/rendezvous/reconnect.h"

#include <fmt/format.h>

namespace aiacc {

Task<std::unique_ptr<wire::SecureChannel>> Reconnect::go(LivenessProbe::Unreachable unreachable, Stop& stop) {
  LivenessProbe probe(dialer_.loop, address_, unreachable);
  for (;;) {
    std::string gone;
    RendezvousDial dial(dialer_);
    try {
      co_await dial.connect(address_, stop);
      probe.begin_silence();
      co_return co_await dial.prove(stop);
    } catch (const Error& error) {
      if (stop.requested()) throw;
      if (dial.connected()) dial.listener_authenticated() ? probe.proved() : probe.end_silence();
      if (dial.given_up()) {
        gone = error.message();
      } else {
        gone = dial.met_unauthenticated() ? probe.unauthenticated(error.message()) : probe.verdict(dial.connected());
      }
    }
    if (!gone.empty()) throw Error(Code::kPeerFailed, gone, 0);
    co_await probe.pause(stop);
  }
}

}  // namespace aiacc

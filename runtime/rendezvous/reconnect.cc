#include "runtime/rendezvous/reconnect.h"

#include <fmt/format.h>

namespace aiacc {

Task<std::unique_ptr<wire::SecureChannel>> Reconnect::go(LivenessProbe::Unreachable unreachable, Stop& stop) {
  LivenessProbe probe(caller_.loop, address_, unreachable);
  for (;;) {
    std::string gone;
    RendezvousDial call(caller_);
    try {
      co_await call.connect(address_, stop);
      probe.begin_silence();
      co_return co_await call.prove(stop);
    } catch (const Error& error) {
      if (stop.requested()) throw;
      if (call.connected()) call.believed() ? probe.proved() : probe.end_silence();
      if (call.given_up()) {
        gone = error.message();
      } else {
        gone = call.met_unauthenticated() ? probe.unauthenticated(error.message()) : probe.verdict(call.connected());
      }
    }
    if (!gone.empty()) throw Error(Code::kPeerFailed, gone, 0);
    co_await probe.pause(stop);
  }
}

}  // namespace aiacc

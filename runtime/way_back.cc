#include "runtime/way_back.h"

#include <fmt/format.h>

#include "runtime/signs_of_life.h"

namespace aiacc {

Task<std::unique_ptr<wire::SecureChannel>> WayBack::go(Stop& stop) {
  SignsOfLife signs(caller_.loop, address_);
  for (;;) {
    std::string gone;
    MeetingCall call(caller_);
    try {
      co_await call.connect(address_, stop);
      signs.begin_silence();
      co_return co_await call.prove(stop);
    } catch (const Error& error) {
      if (stop.requested()) throw;
      if (call.connected()) call.believed() ? signs.proved() : signs.end_silence();
      if (call.given_up()) {
        gone = error.message();
      } else {
        gone = call.met_stranger() ? signs.stranger(error.message()) : signs.verdict();
      }
    }
    if (!gone.empty()) throw Error(Code::kPeerFailed, gone, 0);
    co_await signs.pause(stop);
  }
}

}  // namespace aiacc

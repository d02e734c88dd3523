#include "runtime/watch/liveness_probe.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/io/clock.h"
#include "base/io/nobody_listens.h"
#include "runtime/rendezvous/rendezvous_dial.h"

namespace aiacc {
namespace {

constexpr Duration kLongestPause = std::chrono::milliseconds(500);
// A connection that stays open and silent for this long is a sign of life. One that ends sooner without an answer is none:
// something on the path may accept and drop connections, and the kernel of a living process does not do that.
constexpr Duration kSilence = std::chrono::seconds(1);

}  // namespace

Task<std::unique_ptr<io::Stream>> connect_soon(Loop& loop, io::Net& net, io::Address address, Stop& stop) {
  Stop connecting(stop);
  const Deadline deadline(loop, after(loop.now(), kConnectLimit), connecting,
                          fmt::format("no answer within {:.1f} s", seconds(kConnectLimit)));
  co_return co_await net.connect(std::move(address), connecting);
}

void LivenessProbe::end_silence() noexcept {
  if (loop_.now() - silent_since_ >= kSilence) seen_ = loop_.now();
}

std::string LivenessProbe::unauthenticated(const std::string& why) {
  if (++unauthenticated_ < kMostUnauthenticated) return "";
  return fmt::format("an unauthenticated peer listens at {} now: {}", address_.text(), why);
}

std::string LivenessProbe::verdict(bool connected) {
  try {
    throw;
  } catch (const io::NobodyListens&) {
    return fmt::format("nobody listens at {} any more", address_.text());
  } catch (const Error& error) {
    if (!connected && unreachable_ == Unreachable::kUnknown) seen_ = loop_.now();
    const Duration silent = loop_.now() - seen_;
    if (silent < kReturnLimit) return "";
    return fmt::format("nothing answers at {} for {:.1f} s ({})", address_.text(), seconds(silent), error.message());
  }
}

Task<void> LivenessProbe::pause(Stop& stop) {
  co_await sleep_for(loop_, pause_, stop);
  pause_ = std::min(2 * pause_, kLongestPause);
}

Task<std::string> watch_until_gone(RendezvousDialer dialer, int rank, io::Address address, Stop& stop) {
  LivenessProbe probe(dialer.loop, address);
  for (;;) {
    std::string gone;
    RendezvousDial dial(dialer);
    try {
      co_await dial.connect(address, stop);
      probe.begin_silence();
      co_await dial.await_proof_of(rank, stop);
      probe.proved();
    } catch (const Error& error) {
      if (stop.requested()) throw;
      if (dial.connected()) probe.end_silence();
      gone = dial.met_unauthenticated() ? probe.unauthenticated(error.message()) : probe.verdict(dial.connected());
    }
    if (!gone.empty()) co_return gone;
    co_await probe.pause(stop);
  }
}

}  // namespace aiacc

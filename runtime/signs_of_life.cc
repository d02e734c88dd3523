#include "runtime/signs_of_life.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/io/clock.h"
#include "base/io/nobody_listens.h"
#include "runtime/meeting_call.h"

namespace aiacc {
namespace {

constexpr Duration kLongestPause = std::chrono::milliseconds(500);
// What ends a connection sooner, without a word, may be anything that takes and drops connections; a kernel does not do it for
// a process that lives.
constexpr Duration kSilence = std::chrono::seconds(1);

}  // namespace

Task<std::unique_ptr<io::Stream>> connect_soon(Loop& loop, io::Net& net, io::Address address, Stop& stop) {
  Stop connecting(stop);
  const Deadline deadline(loop, after(loop.now(), kConnectLimit), connecting,
                          fmt::format("no answer within {:.1f} s", seconds(kConnectLimit)));
  co_return co_await net.connect(std::move(address), connecting);
}

void SignsOfLife::end_silence() noexcept {
  if (loop_.now() - silent_since_ >= kSilence) seen_ = loop_.now();
}

std::string SignsOfLife::stranger(const std::string& why) const {
  return fmt::format("a stranger listens at {} now: {}", address_.text(), why);
}

std::string SignsOfLife::verdict() const {
  try {
    throw;
  } catch (const io::NobodyListens&) {
    return fmt::format("nobody listens at {} any more", address_.text());
  } catch (const Error& error) {
    const Duration silent = loop_.now() - seen_;
    if (silent < kReturnLimit) return "";
    return fmt::format("nothing answers at {} for {:.1f} s ({})", address_.text(), seconds(silent), error.message());
  }
}

Task<void> SignsOfLife::pause(Stop& stop) {
  co_await sleep_for(loop_, pause_, stop);
  pause_ = std::min(2 * pause_, kLongestPause);
}

Task<std::string> watch_for_the_end(MeetingCaller caller, int rank, io::Address address, Stop& stop) {
  SignsOfLife signs(caller.loop, address);
  for (;;) {
    std::string gone;
    MeetingCall call(caller);
    try {
      co_await call.connect(address, stop);
      signs.begin_silence();
      co_await call.hear_proof_of(rank, stop);
      signs.proved();
    } catch (const Error& error) {
      if (stop.requested()) throw;
      if (call.connected()) signs.end_silence();
      gone = call.met_stranger() ? signs.stranger(error.message()) : signs.verdict();
    }
    if (!gone.empty()) co_return gone;
    co_await signs.pause(stop);
  }
}

}  // namespace aiacc

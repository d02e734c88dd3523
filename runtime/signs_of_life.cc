#include "runtime/signs_of_life.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/io/clock.h"
#include "base/io/nobody_listens.h"

namespace aiacc {
namespace {

constexpr Duration kLongestPause = std::chrono::milliseconds(500);

}  // namespace

Task<std::unique_ptr<io::Stream>> connect_soon(Loop& loop, io::Net& net, io::Address address, Stop& stop) {
  Stop connecting(stop);
  const Deadline deadline(loop, after(loop.now(), kConnectLimit), connecting,
                          fmt::format("no answer within {:.1f} s", seconds(kConnectLimit)));
  co_return co_await net.connect(std::move(address), connecting);
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

Task<std::string> watch_for_the_end(Loop& loop, io::Net& net, io::Address address, Stop& stop) {
  SignsOfLife signs(loop, address);
  for (;;) {
    std::string gone;
    bool stood = false;
    try {
      const std::unique_ptr<io::Stream> stream = co_await connect_soon(loop, net, address, stop);
      stood = true;
      // Whoever listens there takes this for a stranger that says nothing, and ends it some time.
      std::array<std::byte, 64> ignored{};
      std::size_t moved = 1;
      while (moved > 0) moved = co_await stream->read_some(ignored, stop);
    } catch (...) {
      if (stop.requested()) throw;
      if (!stood) gone = signs.verdict();
    }
    if (!gone.empty()) co_return gone;
    if (stood) signs.seen();
    co_await signs.pause(stop);
  }
}

}  // namespace aiacc

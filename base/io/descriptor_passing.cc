#include "base/io/descriptor_passing.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/io/fd_stream.h"

namespace aiacc::io {
namespace {

FdStream& real(Stream& stream) {
  auto* found = dynamic_cast<FdStream*>(&stream);
  if (found == nullptr || !stream.peer_identity()) {
    throw Error(Code::kUnsupported,
                fmt::format("descriptors cannot travel over {}: only a local socket carries them", stream.describe()));
  }
  return *found;
}

}  // namespace

void accept_descriptors(Stream& stream) { real(stream).accept_descriptors(); }

Fd take_descriptor(Stream& stream) { return real(stream).take_descriptor(); }

Task<std::size_t> send_descriptor(Stream& stream, std::span<const std::byte> bytes, int descriptor, Stop& stop) {
  FdStream& socket = real(stream);
  Loop& loop = socket.owner();
  // Polls by time, not by readiness: the obstacle may be the limit of descriptors in flight, which causes no event.
  for (Duration pause = std::chrono::microseconds(100);;
       pause = std::min<Duration>(2 * pause, std::chrono::milliseconds(20))) {
    stop.throw_if_requested();
    const std::size_t sent = socket.try_send_descriptor(bytes, descriptor);
    if (sent > 0) co_return sent;
    co_await sleep_for(loop, pause, stop);
  }
}

}  // namespace aiacc::io

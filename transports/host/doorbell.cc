#include "transports/host/doorbell.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <span>

#include "base/error.h"
#include "base/io/limits.h"
#include "base/io/real_clock.h"

namespace aiacc {
namespace {

struct BellAddress {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit BellAddress(const Doorbell::Name& name) noexcept {
    address.sun_family = AF_UNIX;  // sun_path begins with a zero byte: abstract
    const auto end = fmt::format_to_n(address.sun_path + 1, sizeof address.sun_path - 1, "aiacc-bell-{:016x}{:016x}",
                                      name[0], name[1]);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + end.size);
  }
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address); }
};

}  // namespace

Doorbell::Doorbell(io::RealLoop& loop)
    : socket_(io::checked_descriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                                     "cannot make the socket that wakes this rank")) {
  io::RealEntropy().fill(std::as_writable_bytes(std::span(name_)));
  const BellAddress address(name_);
  if (bind(socket_.get(), address.get(), address.length) != 0) {
    throw system_error("cannot name the socket that wakes this rank", errno);
  }
  loop.watch_edges(*this, socket_.get(), true, false);
}

bool Doorbell::ring(const Name& other) noexcept {
  const BellAddress address(other);
  const char nothing = 0;
  const ssize_t sent =
      sendto(socket_.get(), &nothing, sizeof nothing, MSG_DONTWAIT | MSG_NOSIGNAL, address.get(), address.length);
  // A full queue means that its owner was woken already, a refused datagram that it has ended.
  return sent >= 0 || errno == EAGAIN || errno == ECONNREFUSED;
}

// Reads until the queue is empty, because an edge-triggered poll reports only new datagrams. The number is bounded, so that
// a process that rings without end cannot keep this rank here.
bool Doorbell::drain() noexcept {
  constexpr int kAtOnce = 16;  // more than a queue holds by default (net.unix.max_dgram_qlen)
  char bytes[16];
  for (int i = 0; rung_ && i < kAtOnce; ++i) rung_ = recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT) >= 0;
  return !rung_;
}

}  // namespace aiacc

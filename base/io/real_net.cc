#include "base/io/real_net.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/io/limits.h"
#include "base/io/nobody_listens.h"

namespace aiacc::io {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  int family() const noexcept { return storage.ss_family; }
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress abstract_address(const Address& address) {
  SocketAddress result;
  auto& local = reinterpret_cast<sockaddr_un&>(result.storage);
  constexpr std::size_t kMaxName = sizeof local.sun_path - 1;  // without the leading zero of an abstract name
  if (address.name.empty() || address.name.size() > kMaxName) {
    throw Error(Code::kInvalidArgument, fmt::format("the local address '{}' has {} characters; 1 to {} are possible",
                                                    address.name, address.name.size(), kMaxName));
  }
  local.sun_family = AF_UNIX;
  std::memcpy(local.sun_path + 1, address.name.data(), address.name.size());
  result.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.name.size());
  return result;
}

SocketAddress tcp_address(const Address& address) {
  SocketAddress result;
  auto& v4 = reinterpret_cast<sockaddr_in&>(result.storage);
  if (inet_pton(AF_INET, address.name.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    result.bytes = sizeof v4;
    return result;
  }
  auto& v6 = reinterpret_cast<sockaddr_in6&>(result.storage);
  if (inet_pton(AF_INET6, address.name.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    result.bytes = sizeof v6;
    return result;
  }
  throw Error(Code::kInvalidArgument, fmt::format("'{}' is no numeric IPv4 or IPv6 address", address.name));
}

SocketAddress socket_address(const Address& address) {
  return address.kind == Address::Kind::kLocal ? abstract_address(address) : tcp_address(address);
}

// Of an IPv4 peer of a listener for both families, its IPv4 address, as lists of hosts name it.
Address address_of(const SocketAddress& from) {
  char text[INET6_ADDRSTRLEN] = "";
  if (from.family() == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from.storage);
    return Address::tcp(inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text), ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from.storage);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    return Address::tcp(inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof text), ntohs(v6.sin6_port));
  }
  return Address::tcp(inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text), ntohs(v6.sin6_port));
}

Fd make_socket(const SocketAddress& address) {
  return Fd(checked_descriptor(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                               "cannot make a socket"));
}

// Small messages are sent at once (TCP_NODELAY); the layers above do the batching. Connections to a host that falls
// silent break: an idle one by keepalives, one with unacknowledged bytes by SilenceWatch. The kernel of a stopped
// process still answers. TCP_NOTSENT_LOWAT is set only where connections share messages (Stream::keep_unsent_below),
// although it would let urgent messages pass megabytes that are queued in the kernel: with 256 KiB or 1 MiB it halved
// the speed of allreduces of 1 to 64 MiB between two hosts (veth).
void prepare(const Fd& socket, int family, Duration silence_limit) noexcept {
  if (family == AF_UNIX) return;
  const auto set = [&](int level, int name, int value) { setsockopt(socket.get(), level, name, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  const int limit = static_cast<int>(std::chrono::duration_cast<std::chrono::seconds>(silence_limit).count());
  const int idle = std::max(limit / 3, 1);
  const int between = std::max(limit / 6, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, idle);  // seconds
  set(IPPROTO_TCP, TCP_KEEPINTVL, between);
  set(IPPROTO_TCP, TCP_KEEPCNT, std::max((limit - idle) / between, 1));
}

// Lets coroutines wait for the readiness of one descriptor.
class ReadyEvent final : private Watch {
 public:
  ReadyEvent(RealLoop& loop, int descriptor, bool read, bool write) : edge_(loop) {
    loop.watch_edges(*this, descriptor, read, write);
  }
  // Must be called directly after EAGAIN: nothing runs in between, so no edge is missed.
  Event::Await next(Stop& stop) noexcept {
    edge_.reset();
    return edge_.wait(stop);
  }

 private:
  void ready(Ready) noexcept override { edge_.set(); }
  Event edge_;
};

bool is_transient_accept_error(int errno_value) noexcept {
  switch (errno_value) {  // accept(2) returns these for the new connection, not for the listener
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH: return true;
    default: return false;
  }
}

std::unique_ptr<Stream> connected(RealLoop& loop, Fd socket, int family, std::string description,
                                  Duration silence_limit) {
  prepare(socket, family, silence_limit);
  auto stream = std::make_unique<FdStream>(loop, std::move(socket), FdStream::Method::kSocket, std::move(description));
  if (family != AF_UNIX) stream->break_when_silent(silence_limit);
  return stream;
}

class RealListener final : public Listener {
 public:
  RealListener(RealLoop& loop, Fd socket, Address address, Congestion congestion, Duration silence_limit)
      : loop_(loop),
        congestion_(std::move(congestion)),
        silence_limit_(silence_limit),
        socket_(std::move(socket)),
        address_(std::move(address)),
        arrivals_(loop, socket_.get(), true, false) {}

  Address address() const override { return address_; }

  // A peer that connects again and again must not starve timers and other streams of this loop. Any user of the machine
  // can connect to a local socket.
  Task<std::unique_ptr<Stream>> accept(Stop& stop) override {
    for (;;) {
      stop.throw_if_requested();
      if (std::exchange(took_one_, false)) co_await yield_turn(loop_, stop);
      SocketAddress peer;
      peer.bytes = sizeof peer.storage;
      const int got = ::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.bytes,
                                SOCK_CLOEXEC | SOCK_NONBLOCK);
      const int reason = errno;
      took_one_ = got >= 0 || is_transient_accept_error(reason);
      if (got >= 0) co_return stream_of(Fd(got), peer);
      if (took_one_) continue;
      if (reason != EAGAIN && reason != EWOULDBLOCK) {
        throw limit_error(fmt::format("cannot accept a connection on {}", address_.text()), reason);
      }
      co_await arrivals_.next(stop);
    }
  }

 private:
  std::unique_ptr<Stream> stream_of(Fd socket, const SocketAddress& peer) {
    std::string description = address_.kind == Address::Kind::kLocal ? address_.text() : address_of(peer).text();
    if (peer.family() != AF_UNIX) congestion_.connected(socket);
    return connected(loop_, std::move(socket), peer.family(), std::move(description), silence_limit_);
  }

  RealLoop& loop_;
  Congestion congestion_;
  Duration silence_limit_;
  Fd socket_;
  Address address_;
  ReadyEvent arrivals_;
  bool took_one_ = false;  // the last call accepted a connection, so there may be more
};

bool has_peer(const Fd& socket) noexcept {
  SocketAddress peer;
  peer.bytes = sizeof peer.storage;
  return getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.bytes) == 0;
}

[[noreturn]] void fail_to_connect(const Address& address, int errno_value) {
  const Error plain = limit_error(fmt::format("cannot connect to {}", address.text()), errno_value);
  if (errno_value == ECONNREFUSED) throw NobodyListens(plain.message());
  const bool ours = errno_value == EMFILE || errno_value == ENFILE || errno_value == ENOMEM || errno_value == EACCES;
  throw ours ? plain : Error(Code::kPeerFailed, plain.message());
}

int pending_error(const Fd& socket) noexcept {
  int error = 0;
  socklen_t bytes = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  return error;
}

// Moves a descriptor to a number that no redirection of stdio uses.
Fd above_stdio(int descriptor, std::string_view what) {
  Fd original(checked_descriptor(descriptor, what));
  if (original.get() > 3) return original;
  return Fd(checked_descriptor(fcntl(original.get(), F_DUPFD_CLOEXEC, 4), what));
}

void set_nonblocking(int descriptor) noexcept { fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK); }

mode_t type_of(int descriptor, const std::string& description) {
  struct stat about {};
  if (fstat(descriptor, &about) != 0) throw system_error(fmt::format("cannot use {}", description), errno);
  return about.st_mode & S_IFMT;
}

}  // namespace

std::unique_ptr<Listener> RealNet::listen(const Address& address) {
  const SocketAddress place = socket_address(address);
  Fd socket = make_socket(place);
  Congestion congestion = settings_.congestion;
  if (place.family() != AF_UNIX) {
    congestion.prepare(socket);
    const int on = 1;
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const int off = 0;  // "::" accepts IPv4 too, whatever the host's default is
    if (place.family() == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(socket.get(), place.get(), place.bytes) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    throw limit_error(fmt::format("cannot listen on {}", address.text()), errno);
  }
  Address actual = address;
  if (place.family() != AF_UNIX) {
    SocketAddress bound;
    bound.bytes = sizeof bound.storage;
    getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.bytes);
    actual = address_of(bound);
  }
  return std::make_unique<RealListener>(loop_, std::move(socket), std::move(actual), std::move(congestion),
                                        settings_.silence_limit);
}

Task<std::unique_ptr<Stream>> RealNet::connect(Address address, Stop& stop) {
  const SocketAddress place = socket_address(address);
  Fd socket = make_socket(place);
  Congestion congestion = settings_.congestion;
  if (place.family() != AF_UNIX) congestion.prepare(socket);
  Duration pause = std::chrono::milliseconds(1);
  for (;;) {
    stop.throw_if_requested();
    if (::connect(socket.get(), place.get(), place.bytes) == 0) break;
    if (errno == EINPROGRESS || errno == EINTR) {
      ReadyEvent established(loop_, socket.get(), false, true);
      try {
        co_await established.next(stop);
      } catch (...) {
        if (!has_peer(socket)) throw;  // otherwise it has succeeded before the stop, and the caller ends it as it wants
      }
      const int error = pending_error(socket);
      if (error != 0) fail_to_connect(address, error);
      break;
    }
    if (errno != EAGAIN) fail_to_connect(address, errno);
    // The local listener's queue is full, for example because hundreds of ranks connect: there is no event for free
    // space.
    co_await sleep_for(loop_, pause, stop);
    pause = std::min<Duration>(2 * pause, std::chrono::milliseconds(50));
  }
  if (place.family() != AF_UNIX) congestion.connected(socket);
  co_return connected(loop_, std::move(socket), place.family(), address.text(), settings_.silence_limit);
}

std::unique_ptr<Stream> adopt(RealLoop& loop, Fd descriptor, std::string description) {
  if (type_of(descriptor.get(), description) == S_IFSOCK) {
    return std::make_unique<FdStream>(loop, std::move(descriptor), FdStream::Method::kSocket, std::move(description));
  }
  set_nonblocking(descriptor.get());
  return std::make_unique<FdStream>(loop, std::move(descriptor), FdStream::Method::kOwnFlags, std::move(description));
}

std::unique_ptr<Stream> adopt_inherited(RealLoop& loop, int descriptor, std::string description) {
  const mode_t type = type_of(descriptor, description);
  if (type == S_IFIFO || type == S_IFCHR) {
    const int access = fcntl(descriptor, F_GETFL) & O_ACCMODE;
    const std::string path = fmt::format("/proc/self/fd/{}", descriptor);
    const int opened = ::open(path.c_str(), access | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (opened >= 0) {
      Fd own = above_stdio(opened, description);
      return std::make_unique<FdStream>(loop, std::move(own), FdStream::Method::kOwnFlags, std::move(description));
    }
  }
  Fd copy(checked_descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 4), description));
  const auto method = type == S_IFSOCK ? FdStream::Method::kSocket : FdStream::Method::kSharedFlags;
  return std::make_unique<FdStream>(loop, std::move(copy), method, std::move(description));
}

FdPair make_pipe() {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) throw limit_error("cannot make a pipe", errno);
  Fd first(ends[0]);
  Fd second(ends[1]);
  return {above_stdio(first.release(), "cannot make a pipe"), above_stdio(second.release(), "cannot make a pipe")};
}

FdPair make_socketpair() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw limit_error("cannot make a socket pair", errno);
  Fd first(ends[0]);
  Fd second(ends[1]);
  return {above_stdio(first.release(), "cannot make a socket pair"),
          above_stdio(second.release(), "cannot make a socket pair")};
}

std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> stream_pair(RealLoop& loop,
                                                                        const std::string& description) {
  FdPair ends = make_socketpair();
  return {adopt(loop, std::move(ends.first), description), adopt(loop, std::move(ends.second), description)};
}

}  // namespace aiacc::io

#include "base/io/fd_stream.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/io/flow_state.h"
#include "base/io/limits.h"
#include "base/io/quiet_write.h"

namespace aiacc::io {
namespace {

constexpr std::size_t kSharedWriteBytes = 4096;  // a writable pipe takes this many bytes without blocking

bool is_broken_connection(int errno_value) noexcept {
  switch (errno_value) {
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case ECONNREFUSED: return true;
    default: return false;
  }
}

bool ready_now(int descriptor, short events) noexcept {
  pollfd wanted{descriptor, events, 0};
  return ::poll(&wanted, 1, 0) != 0;
}

std::optional<PeerIdentity> identity_of(int descriptor) noexcept {
  sockaddr_storage address{};
  socklen_t address_bytes = sizeof address;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &address_bytes) != 0) return std::nullopt;
  if (address.ss_family != AF_UNIX) return std::nullopt;
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return std::nullopt;
  return PeerIdentity{credentials.uid, credentials.pid};
}

}  // namespace

FdStream::FdStream(RealLoop& loop, Fd descriptor, Method method, std::string description)
    : loop_(loop), descriptor_(std::move(descriptor)), method_(method), description_(std::move(description)) {
  if (method_ == Method::kSocket) identity_ = identity_of(descriptor_.get());
}

FdStream::~FdStream() {
  remove_waiter(IoAwait::Direction::kRead);
  unwatch();  // before descriptor_ closes
}

void FdStream::break_when_silent(Duration limit) noexcept {
  SilenceWatch::Owner& owner = *this;
  silence_.emplace(loop_, descriptor_.get(), limit, owner);
}

void FdStream::expect_answers() noexcept { expects_answers_ = true; }

// It changes speed only, so a kernel that does not know it is no error.
void FdStream::keep_unsent_below(int bytes) noexcept {
  setsockopt(descriptor_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

FlowState FdStream::flow() const noexcept { return flow_state(descriptor_.get()); }

void FdStream::shutdown_write() noexcept {
  if (method_ == Method::kSocket) {
    ::shutdown(descriptor_.get(), SHUT_WR);
  } else {  // one-way: only closing it tells the reader
    unwatch();
    descriptor_.reset();
  }
}

Fd FdStream::take_descriptor() noexcept {
  if (unclaimed_.empty()) return Fd();
  Fd oldest = std::move(unclaimed_.front());
  unclaimed_.pop_front();
  return oldest;
}

bool FdStream::try_io(IoAwait& io) {
  deferred_ = !loop_.may_complete_in_place();
  if (deferred_) return false;
  if (io.direction() == IoAwait::Direction::kRead && drained_ && !ended_) return false;
  return move(io);
}

// Called directly after try_io() of the same wait, so an edge in between is still reported.
void FdStream::begin_io(IoAwait& io) noexcept {
  add_waiter(io);
  try {
    if (watchable_ && !watching() && descriptor_) {
      watchable_ = loop_.watch_edges(*this, descriptor_.get(), true, true);
    }
  } catch (...) {
    remove_waiter(io.direction());
    io.fail(std::current_exception());
    return;
  }
  // There is no new edge for a wait that was put off although ready, nor for a file.
  if ((deferred_ || !watching()) && !Job::linked()) loop_.post(*this);
}

void FdStream::add_waiter(IoAwait& io) noexcept {
  waiting(io.direction()) = &io;
  if (io.direction() == IoAwait::Direction::kRead && expects_answers_) loop_.await_answer(*this);
}

void FdStream::remove_waiter(IoAwait::Direction direction) noexcept {
  waiting(direction) = nullptr;
  if (direction == IoAwait::Direction::kRead && Answerer::linked()) loop_.await_no_answer(*this);
}

void FdStream::cancel_io(IoAwait& io) noexcept { remove_waiter(io.direction()); }

void FdStream::ready(Ready what) noexcept {
  if (what.ended) ended_ = true;
  if (what.readable) {
    drained_ = false;
    advance(reader_);
  }
  if (what.writable) advance(writer_);
}

// Fails the present waits and later attempts.
void FdStream::silence_detected() noexcept {
  silent_ = ended_ = true;
  run();
}

void FdStream::run() noexcept {
  advance(reader_);
  advance(writer_);
}

// Returns whether the wait is over.
bool FdStream::advance(IoAwait*& waiting) noexcept {
  if (waiting == nullptr) return false;
  IoAwait& io = *waiting;
  try {
    if (!move(io)) return false;
    remove_waiter(io.direction());
    io.complete();
  } catch (...) {
    remove_waiter(io.direction());
    io.fail(std::current_exception());
  }
  return true;
}

// Moves bytes now; false if the kernel is not ready.
bool FdStream::move(IoAwait& io) {
  if (io.bytes() == 0) return true;
  if (silent_) fail(io.direction(), ETIMEDOUT);
  for (;;) {
    ssize_t moved = 0;
    if (io.direction() == IoAwait::Direction::kWrite) {
      moved = io.pieces().empty() ? write_now({io.data(), io.bytes()}) : write_pieces(io.pieces());
    } else {
      moved = accepts_descriptors_ ? receive_with_descriptors(io) : read_now(io);
    }
    if (moved >= 0) {
      io.set_moved(static_cast<std::size_t>(moved));
      if (io.direction() == IoAwait::Direction::kRead) {
        has_read(static_cast<std::size_t>(moved), io.bytes());
      } else if (silence_) {
        silence_->bytes_written();
      }
      return true;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (errno == EINTR) continue;
    ended_ = true;
    fail(io.direction(), errno);
  }
}

// A short read has emptied the socket: another read before the next edge would be useless.
void FdStream::has_read(std::size_t moved, std::size_t wanted) noexcept {
  drained_ = expects_answers_ && watching() && moved < wanted;
  if (moved == 0) ended_ = true;
}

ssize_t FdStream::read_now(IoAwait& io) noexcept {
  if (method_ == Method::kSocket) return ::recv(descriptor_.get(), io.data(), io.bytes(), MSG_DONTWAIT);
  if (method_ == Method::kSharedFlags && !ready_now(descriptor_.get(), POLLIN)) {
    errno = EAGAIN;
    return -1;
  }
  const ssize_t moved = ::read(descriptor_.get(), io.data(), io.bytes());
  // A terminal whose other side is closed returns EIO, which means end of stream.
  return moved < 0 && errno == EIO && isatty(descriptor_.get()) != 0 ? 0 : moved;
}

ssize_t FdStream::write_now(Piece piece) noexcept {
  if (method_ == Method::kSocket) {
    return ::send(descriptor_.get(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (method_ == Method::kOwnFlags) return write_without_sigpipe(descriptor_.get(), piece.data(), piece.size());
  if (watchable_ && !ready_now(descriptor_.get(), POLLOUT)) {
    errno = EAGAIN;
    return -1;
  }
  return write_without_sigpipe(descriptor_.get(), piece.data(), std::min(piece.size(), kSharedWriteBytes));
}

ssize_t FdStream::write_pieces(std::span<const Piece> pieces) noexcept {
  if (pieces.size() == 1) return write_now(pieces.front());
  constexpr std::size_t kMost = 64;
  std::array<iovec, kMost> gathered;
  std::size_t count = 0;
  for (const Piece& piece : pieces) {
    if (piece.empty()) continue;
    if (method_ != Method::kSocket) return write_now(piece);  // one piece after the other
    if (count == kMost) break;
    gathered[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
  }
  msghdr message{};
  message.msg_iov = gathered.data();
  message.msg_iovlen = count;
  return ::sendmsg(descriptor_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t FdStream::receive_with_descriptors(IoAwait& io) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxUnclaimed * sizeof(int))> control{};
  iovec piece{io.data(), io.bytes()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t moved = ::recvmsg(descriptor_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (moved < 0) return moved;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(part) + i * sizeof(int), sizeof received);
      unclaimed_.emplace_back(received);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0 || unclaimed_.size() > kMaxUnclaimed) {
    throw Error(Code::kProtocol,
                fmt::format("{} sent more descriptors than the {} that may wait to be taken, or this process's limit "
                            "('ulimit -n') left no room for them",
                            description_, kMaxUnclaimed));
  }
  return moved;
}

std::size_t FdStream::try_send_descriptor(std::span<const std::byte> bytes, int descriptor) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
  for (;;) {
    const ssize_t moved = ::sendmsg(descriptor_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (moved >= 0) return static_cast<std::size_t>(moved);
    // ETOOMANYREFS: a user may have only as many descriptors in flight as open ones; the number falls when peers
    // receive some.
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ETOOMANYREFS) return 0;
    if (errno != EINTR) fail(IoAwait::Direction::kWrite, errno);
  }
}

void FdStream::fail(IoAwait::Direction direction, int errno_value) const {
  const std::string what =
      fmt::format("{} {}", direction == IoAwait::Direction::kRead ? "reading from" : "writing to", description_);
  const Error plain = limit_error(what, errno_value);
  throw is_broken_connection(errno_value) ? Error(Code::kPeerFailed, plain.message()) : plain;
}

}  // namespace aiacc::io

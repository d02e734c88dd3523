// Net: byte streams between processes and hosts. Real: epoll sockets (base/io/real_net.h). Simulated: virtual links
// that delay, limit, cut and corrupt, decided by a seed (base/sim). One conformance suite tests both
// (net_conformance.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/io/flow_state.h"
#include "base/task/loop.h"

namespace aiacc::io {

// The address of a listener. Text forms: "local:NAME" (an abstract socket of this host: no file, removed with its
// owner), "tcp:192.0.2.1:4242", "tcp:[2001:db8::1]:4242". TCP addresses are numeric; port 0 lets listen() choose a free
// one.
struct Address {
  enum class Kind : std::uint8_t { kLocal, kTcp };
  Kind kind = Kind::kLocal;
  std::string name;
  std::uint16_t port = 0;

  static Address local(std::string name) { return {Kind::kLocal, std::move(name), 0}; }
  static Address tcp(std::string ip, std::uint16_t port) { return {Kind::kTcp, std::move(ip), port}; }
  static Address parse(const std::string& text);  // throws kInvalidArgument with a sentence
  std::string text() const;
  bool operator==(const Address&) const = default;
};

// The process at the other end of a local stream, as reported by the kernel (SO_PEERCRED). Unknown for TCP.
struct PeerIdentity {
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
};

class Stream;

// A piece of a gathered write.
using Piece = std::span<const std::byte>;

// co_await stream.read_some(...) / write_some(...): the number of bytes moved, at least 1; 0 from a read is end of stream.
class IoAwait final : public Leaf, public ListNode<IoAwait> {
 public:
  enum class Direction : std::uint8_t { kRead, kWrite };
  IoAwait(Loop& loop, Stop& stop, Stream& stream, Direction direction, std::byte* data, std::size_t bytes) noexcept
      : Leaf(loop, stop), stream_(stream), direction_(direction), data_(data), bytes_(bytes) {}
  IoAwait(Loop& loop, Stop& stop, Stream& stream, std::span<const Piece> pieces) noexcept
      : Leaf(loop, stop), stream_(stream), direction_(Direction::kWrite), data_(nullptr), bytes_(0), pieces_(pieces) {
    for (const Piece& piece : pieces) bytes_ += piece.size();
  }

  std::size_t await_resume() const {
    Leaf::await_resume();
    return moved_;
  }

  // For the stream that serves this wait.
  Direction direction() const noexcept { return direction_; }
  std::byte* data() const noexcept { return data_; }  // never written through when direction() is kWrite
  std::size_t bytes() const noexcept { return bytes_; }
  // The pieces of a gathered write, which has no data(); otherwise empty.
  std::span<const Piece> pieces() const noexcept { return pieces_; }
  void set_moved(std::size_t moved) noexcept { moved_ = moved; }

 private:
  bool try_now() override;
  void begin() noexcept override;
  void cancel() noexcept override;

  Stream& stream_;
  Direction direction_;
  std::byte* data_;
  std::size_t bytes_;
  std::span<const Piece> pieces_;
  std::size_t moved_ = 0;
};

// Ordered bytes in both directions. At most one read and one write may wait at a time. The destructor closes it; no
// wait may be outstanding then. On a broken connection reads and writes throw kPeerFailed (reset, timed out) or
// kSystem.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  IoAwait read_some(std::span<std::byte> into, Stop& stop) noexcept {
    return IoAwait(loop(), stop, *this, IoAwait::Direction::kRead, into.data(), into.size());
  }
  IoAwait write_some(std::span<const std::byte> from, Stop& stop) noexcept {
    return IoAwait(loop(), stop, *this, IoAwait::Direction::kWrite, const_cast<std::byte*>(from.data()), from.size());
  }
  // The same for bytes in several places, in one system call. The list of pieces is read until the wait ends; meanwhile
  // its owner may point a piece to a copy of the same bytes.
  IoAwait write_gathered(std::span<const Piece> pieces, Stop& stop) noexcept {
    return IoAwait(loop(), stop, *this, pieces);
  }

  // Says that an answer is expected soon: a real loop then polls for a while before it blocks.
  virtual void expect_answers() noexcept {}
  // Lets a write wait while about this much is neither sent nor waited for: what is written late goes to another stream that is
  // faster, or past what is less urgent. 0: as much as the system likes.
  virtual void keep_unsent_below(int /*bytes*/) noexcept {}
  // What of the bytes that were written has arrived, as far as the system says it.
  virtual FlowState flow() const noexcept { return {}; }
  virtual void shutdown_write() noexcept = 0;  // the peer reads end of stream after the bytes written so far
  virtual std::optional<PeerIdentity> peer_identity() const noexcept = 0;
  virtual std::string describe() const = 0;  // "tcp:10.0.0.1:4242" …, for messages
  // The descriptor of a real stream, for passing descriptors over it (base/io/descriptor_passing.h); -1 if simulated.
  virtual int descriptor() const noexcept { return -1; }

 protected:
  friend class IoAwait;
  virtual Loop& loop() noexcept = 0;
  // Moves bytes now, sets moved and returns true, or returns false; may throw.
  virtual bool try_io(IoAwait& io) = 0;
  virtual void begin_io(IoAwait& io) noexcept = 0;  // waits for readiness; completes or fails `io` later
  virtual void cancel_io(IoAwait& io) noexcept = 0;
};

inline bool IoAwait::try_now() { return stream_.try_io(*this); }
inline void IoAwait::begin() noexcept { stream_.begin_io(*this); }
inline void IoAwait::cancel() noexcept { stream_.cancel_io(*this); }

class Listener {
 public:
  virtual ~Listener() = default;  // stops listening; accepted connections stay open
  virtual Address address() const = 0;
  // Consecutive calls let timers and other streams of the loop run in between.
  virtual Task<std::unique_ptr<Stream>> accept(Stop& stop) = 0;
};

class Net {
 public:
  virtual ~Net() = default;
  // Throws kSystem naming the address (in use, no permission, …).
  virtual std::unique_ptr<Listener> listen(const Address& address) = 0;
  // Throws kPeerFailed with the address if it is unreachable, NobodyListens if it refuses; ends when `stop` is
  // requested.
  virtual Task<std::unique_ptr<Stream>> connect(Address address, Stop& stop) = 0;
};

// Reads until `into` is full; false if the stream ended before its first byte; kProtocol if it ended in the middle.
Task<bool> read_exactly(Stream& stream, std::span<std::byte> into, Stop& stop);
Task<void> write_all(Stream& stream, std::span<const std::byte> from, Stop& stop);

}  // namespace aiacc::io

// SecureChannel: encrypted messages over a connection whose two ends have proved themselves (base/wire/handshake.h).
// Nobody in between can read a message, and a message that was changed, repeated, dropped or reordered ends the
// connection. Each direction is a stream of libsodium's secretstream with its own session key. An end of stream without
// a farewell is an error, because an attacker may have cut the connection.
#pragma once

#include <memory>
#include <optional>

#include "base/wire/channel.h"
#include "base/wire/handshake.h"

namespace aiacc::wire {

using SealHeader = std::array<std::byte, 24>;

// The first message of each direction.
struct SealBegins {
  static constexpr std::uint16_t kType = 210;
  SealHeader header{};
  auto fields() { return std::tie(header); }
};

// An encrypted message that begins with its type, or an empty one for the farewell; with 17 bytes of authentication.
struct Sealed {
  static constexpr std::uint16_t kType = 211;
  std::string bytes;
  auto fields() { return std::tie(bytes); }
};

class SecureChannel {
 public:
  // Accepts messages of at most `limit` bytes.
  SecureChannel(Loop& loop, std::unique_ptr<io::Stream> stream, const Secret& outgoing, const Secret& incoming,
                std::uint32_t limit = kMaxFrameBytes);
  ~SecureChannel();

  template <Message T>
  Task<void> send(const T& message, Stop& stop) {
    return send_sealed(encode_frame(message), false, stop);
  }
  // Nothing may be sent after it.
  Task<void> farewell(Stop& stop) { return send_sealed({}, true, stop); }

  // The next message; nullopt after the other end's farewell. Throws kProtocol for a message that is not authentic at
  // this position, and kPeerFailed for an end of stream without a farewell.
  Task<std::optional<Frame>> receive(Stop& stop);

 private:
  struct Ciphers;
  Task<void> send_sealed(Bytes frame, bool last, Stop& stop);
  Sealed seal(const Bytes& frame, bool last);
  std::optional<Frame> open(const Sealed& sealed);
  [[noreturn]] void refuse();

  Channel channel_;
  std::unique_ptr<Ciphers> ciphers_;
  bool begun_ = false;  // sending has begun
  bool expects_begin_ = true;
  bool over_ = false;  // the other end has said farewell
};

}  // namespace aiacc::wire

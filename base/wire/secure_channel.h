// SecureChannel: messages over a connection whose two ends have proved themselves (base/wire/handshake.h), encrypted and in
// order: nobody between them can read, change, repeat, drop or reorder one without the connection ending. Each direction is a
// stream of libsodium's secretstream with its own session key. An end of stream without a farewell is an error, because
// somebody between may have cut it.
#pragma once

#include <memory>
#include <optional>

#include "base/wire/channel.h"
#include "base/wire/handshake.h"

namespace aiacc::wire {

using SealHeader = std::array<std::byte, 24>;

// First message of each direction.
struct SealBegins {
  static constexpr std::uint16_t kType = 210;
  SealHeader header{};
  auto fields() { return std::tie(header); }
};

// A message, its type first, or nothing for the farewell; encrypted, and with the 17 bytes that prove it.
struct Sealed {
  static constexpr std::uint16_t kType = 211;
  std::string bytes;
  auto fields() { return std::tie(bytes); }
};

class SecureChannel {
 public:
  // Takes messages of at most `limit` bytes.
  SecureChannel(Loop& loop, std::unique_ptr<io::Stream> stream, const Secret& outgoing, const Secret& incoming,
                std::uint32_t limit = kMaxFrameBytes);
  ~SecureChannel();

  template <Message T>
  Task<void> send(const T& message, Stop& stop) {
    return send_sealed(encode_frame(message), false, stop);
  }
  // Nothing is sent after it.
  Task<void> farewell(Stop& stop) { return send_sealed({}, true, stop); }

  // The next message; nullopt after the other end's farewell. Throws kProtocol for what was not sealed by it, in this order,
  // and kPeerFailed for an end of stream without a farewell.
  Task<std::optional<Frame>> receive(Stop& stop);

 private:
  struct Ciphers;
  Task<void> send_sealed(Bytes frame, bool last, Stop& stop);
  Sealed seal(const Bytes& frame, bool last);
  std::optional<Frame> open(const Sealed& sealed);
  [[noreturn]] void refuse();

  Channel channel_;
  std::unique_ptr<Ciphers> ciphers_;
  bool begun_ = false;  // to send
  bool expects_begin_ = true;
  bool over_ = false;  // the other end has said farewell
};

}  // namespace aiacc::wire

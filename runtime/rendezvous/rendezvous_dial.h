// RendezvousDial: an authenticated connection to another rank: to rank 0 as the control connection (purpose kControl),
// or to any other rank only to check whether it is alive.
#pragma once

#include <memory>

#include "base/io/clock.h"
#include "base/io/net.h"
#include "base/wire/handshake.h"
#include "base/wire/secure_channel.h"

namespace aiacc {

// The identity of the dialing rank, and the job. What it refers to outlives its dials.
struct RendezvousDialer {
  Loop& loop;
  io::Net& net;
  io::Entropy& entropy;
  wire::Secret secret;
  std::uint64_t job;
  int rank;
  wire::Versions versions = {};
};

class RendezvousDial {
 public:
  explicit RendezvousDial(const RendezvousDialer& dialer) : dialer_(dialer) {}

  // Returns when the other rank's host has accepted the connection; the process itself may take long to answer.
  Task<void> connect(io::Address address, Stop& stop);
  // After connect(): both ends authenticate. Throws kPeerFailed if the verdict is not "accepted".
  Task<std::unique_ptr<wire::SecureChannel>> prove(Stop& stop);

  // Alternative to prove(), after connect() to a rank's data address: returns when the other end has proved that it is
  // `rank`. This end sends no terms, so no data connection is established.
  Task<void> await_proof_of(int rank, Stop& stop);

  bool connected() const noexcept { return stage_ != Stage::kConnecting; }
  // It is connected and the authentication is not complete.
  bool proving() const noexcept { return connected() && stage_ != Stage::kProved; }
  // The other end does not know the secret.
  bool refused() const noexcept { return stage_ == Stage::kAnswered; }
  // The other end does not know the secret, or it sent a malformed handshake.
  bool met_unauthenticated() const noexcept { return refused() || stage_ == Stage::kMalformed; }
  // The other end has authenticated.
  bool listener_authenticated() const noexcept { return stage_ >= Stage::kAuthenticated; }
  // Of the handshake, after prove().
  std::uint16_t version() const noexcept { return version_; }
  // Rank 0 considers this rank lost.
  bool given_up() const noexcept { return given_up_; }

 private:
  enum class Stage : std::uint8_t { kConnecting, kConnected, kMalformed, kAnswered, kAuthenticated, kProved };

  Task<wire::DialerHandshake::Conclusion> exchange_proof(wire::DialerHandshake& handshake,
                                                         wire::HandshakeStorage& storage, wire::Bytes proof,
                                                         Stop& stop);
  Task<wire::Bytes> exchange_hello(wire::DialerHandshake& handshake, wire::HandshakeStorage& storage, Stop& stop);

  const RendezvousDialer dialer_;
  Stage stage_ = Stage::kConnecting;
  bool given_up_ = false;
  std::uint16_t version_ = 0;
  std::unique_ptr<io::Stream> stream_;
};

}  // namespace aiacc

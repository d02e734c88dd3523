// One call of another rank: a connection whose ends prove themselves, to rank 0 for all that follows (purpose kControl), or to
// any other only to see whether it lives.
#pragma once

#include <memory>

#include "base/io/clock.h"
#include "base/io/net.h"
#include "base/wire/handshake.h"
#include "base/wire/secure_channel.h"

namespace aiacc {

// Who calls, with what, and about which job. What it refers to outlives its calls.
struct MeetingCaller {
  Loop& loop;
  io::Net& net;
  io::Entropy& entropy;
  wire::Secret secret;
  std::uint64_t job;
  int rank;
};

class MeetingCall {
 public:
  explicit MeetingCall(const MeetingCaller& caller) : caller_(caller) {}

  // Returns when the other rank's host has taken the connection; its process may take long to answer.
  Task<void> connect(io::Address address, Stop& stop);
  // After connect(): both ends prove themselves. Throws kPeerFailed if the verdict is not "accepted".
  Task<std::unique_ptr<wire::SecureChannel>> prove(Stop& stop);

  // After connect(), instead: returns when the other end has proved that it is `rank`, where that takes data connections. This
  // end goes no further than where it would have to prove itself, so that nothing is begun there.
  Task<void> hear_proof_of(int rank, Stop& stop);

  bool connected() const noexcept { return stage_ != Stage::kConnecting; }
  // It has a connection, and both ends have not proved themselves yet.
  bool proving() const noexcept { return connected() && stage_ != Stage::kProved; }
  // Somebody answered who does not know the secret.
  bool refused() const noexcept { return stage_ == Stage::kAnswered; }
  // The same, or somebody who does not even speak the protocol.
  bool met_stranger() const noexcept { return refused() || stage_ == Stage::kBabbled; }
  // The other end has proved itself.
  bool believed() const noexcept { return stage_ >= Stage::kBelieved; }
  // Rank 0 has given this rank up for lost.
  bool given_up() const noexcept { return given_up_; }

 private:
  enum class Stage : std::uint8_t { kConnecting, kConnected, kBabbled, kAnswered, kBelieved, kProved };

  Task<wire::Bytes> hear_challenge(wire::DialerHandshake& handshake, wire::HandshakeStorage& storage, Stop& stop);

  const MeetingCaller caller_;
  Stage stage_ = Stage::kConnecting;
  bool given_up_ = false;
  std::unique_ptr<io::Stream> stream_;
};

}  // namespace aiacc

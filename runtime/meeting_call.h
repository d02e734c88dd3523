// One call of rank 0: a connection whose ends have proved themselves, of purpose kControl.
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

  // Returns when rank 0's host has taken the connection; its process may take long to answer.
  Task<void> connect(io::Address address, Stop& stop);
  // After connect(): both ends prove themselves. Throws kPeerFailed if the verdict is not "accepted".
  Task<std::unique_ptr<wire::SecureChannel>> prove(Stop& stop);

  bool connected() const noexcept { return stage_ != Stage::kConnecting; }
  // It has a connection, and both ends have not proved themselves yet.
  bool proving() const noexcept { return connected() && stage_ != Stage::kProved; }
  // Somebody answered who does not know the secret.
  bool refused() const noexcept { return stage_ == Stage::kAnswered; }
  // Rank 0 has given this rank up for lost.
  bool given_up() const noexcept { return given_up_; }

 private:
  enum class Stage : std::uint8_t { kConnecting, kConnected, kAnswered, kBelieved, kProved };

  const MeetingCaller caller_;
  Stage stage_ = Stage::kConnecting;
  bool given_up_ = false;
  std::unique_ptr<io::Stream> stream_;
};

}  // namespace aiacc

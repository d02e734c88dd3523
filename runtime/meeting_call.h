// One call of rank 0: a connection whose ends have proved themselves, of purpose kControl.
#pragma once

#include <memory>

#include "base/io/clock.h"
#include "base/io/net.h"
#include "base/wire/handshake.h"
#include "base/wire/secure_channel.h"

namespace aiacc {

class MeetingCall {
 public:
  // `net` and `entropy` outlive the call.
  MeetingCall(Loop& loop, io::Net& net, io::Entropy& entropy, const wire::Secret& secret, std::uint64_t job, int rank)
      : loop_(loop), net_(net), entropy_(entropy), secret_(secret), job_(job), rank_(rank) {}

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

  Loop& loop_;
  io::Net& net_;
  io::Entropy& entropy_;
  wire::Secret secret_;
  std::uint64_t job_;
  int rank_;
  Stage stage_ = Stage::kConnecting;
  bool given_up_ = false;
  std::unique_ptr<io::Stream> stream_;
};

}  // namespace aiacc

// LivenessProbe: whether a process of another host still runs after a connection to it broke. The prober dials the port
// on which that process listened, sends the hello of a handshake to that rank (docs/wire-protocol.md, "Reconnecting"),
// and interprets the result:
//
//   nobody listens           it is gone: its kernel closes its ports when it ends
//   the rank's proof         it lives. The proof is a hash, keyed with the job's secret, over this hello with its fresh nonce,
//                            both ranks and the purpose: no other process can make it, and no earlier answer, one of another
//                            rank, or the hello itself sent back, passes for it
//   any other answer         a failed attempt, which something on the path may have caused. After kMostUnauthenticated such
//                            answers without a proof in between it is gone: an unauthenticated peer listens in its place
//   no answer while the      it lives: a process that computes or is stopped answers nothing, but its kernel accepts the
//   connection stays open    connection and ends it only with the process
//   the connection ends      no evidence. If all dials within kReturnLimit end like this, it is gone
//   without an answer
//   no connection            unknown: the host may be down, or only the path to it. PathWatch then ends the operations that need
//                            this path, as a lost path and not a lost rank (runtime/watch/path_watch.h). During the rendezvous
//                            there are no such operations, and a missing connection counts as "ends without an answer"
//
// So neither a rank that computes nor one behind a broken path is ever considered dead, however long that lasts. The
// drawback: a foreign process that listens on a dead rank's port and stays silent cannot be distinguished from a rank that
// computes. Operations that wait for that rank then end at their deadline, or when the dead rank's local peers, which
// their kernel notifies (runtime/watch/local_peer_watch.h), report its death.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/io/net.h"
#include "base/task/task.h"
#include "base/time.h"

namespace aiacc {

// The time within which a rank that lost its connection during the rendezvous must reconnect, and within which a rank
// whose host accepts connections must show a sign of life.
inline constexpr Duration kReturnLimit = std::chrono::seconds(5);
inline constexpr Duration kConnectLimit = std::chrono::seconds(3);  // for one address
inline constexpr int kMostUnauthenticated = 8;

// A connection to `address` within kConnectLimit; throws as Net::connect() does.
Task<std::unique_ptr<io::Stream>> connect_soon(Loop& loop, io::Net& net, io::Address address, Stop& stop);

// The findings of a series of dials to a port.
class LivenessProbe {
 public:
  enum class Unreachable : std::uint8_t { kUnknown, kNoSign };
  LivenessProbe(Loop& loop, io::Address address, Unreachable unreachable = Unreachable::kUnknown)
      : loop_(loop), address_(std::move(address)), unreachable_(unreachable), seen_(loop.now()) {}

  const io::Address& address() const noexcept { return address_; }
  void proved() noexcept {
    seen_ = loop_.now();
    unauthenticated_ = 0;
  }
  // A connection was open from begin_silence() to end_silence(), and nothing arrived on it.
  void begin_silence() noexcept { silent_since_ = loop_.now(); }
  void end_silence() noexcept;
  // After a dial that ended with the current exception: why the process counts as gone, or "" if it does not. `connected`:
  // the host took the connection.
  std::string verdict(bool connected);
  // The same if an unauthenticated peer answered; `why` says what it did wrong.
  std::string unauthenticated(const std::string& why);
  // Waits between two dials.
  Task<void> pause(Stop& stop);

 private:
  Loop& loop_;
  io::Address address_;
  Unreachable unreachable_;
  Instant seen_;
  Instant silent_since_{};
  int unauthenticated_ = 0;  // answers since the last proof
  Duration pause_ = std::chrono::milliseconds(10);
};

struct RendezvousDialer;

// Returns when the process of `rank`, which accepts data connections at `address`, is gone; the result is the evidence.
// The dialer's secret and job are those of the roster.
Task<std::string> watch_until_gone(RendezvousDialer dialer, int rank, io::Address address, Stop& stop);

}  // namespace aiacc

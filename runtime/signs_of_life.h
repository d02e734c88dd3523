// Whether a process of another host is still there, although a connection to it broke. Somebody calls the port on which it
// listened, says the hello of a handshake to that rank (docs/wire-protocol.md, "Coming back"), and looks at what comes:
//
//   nobody listens           it is gone: its kernel closes its ports when it ends
//   the rank's proof         it lives. The proof is a hash, keyed with the job's secret, over this hello with its fresh nonce,
//                            both ranks and the purpose: no other process can make it, and no earlier answer, one of another
//                            rank, or the hello itself sent back, passes for it
//   any other answer         it is gone, and a stranger listens there now
//   nothing, for as long as  it lives: a process that computes or is stopped answers nothing, and its kernel takes the
//   the connection stands    connection all the same and ends it with the process
//   an end without a word,   no sign; it is gone after kReturnLimit without one. (A connection that broke for silence has
//   or no connection         waited for AIACC_LEASE already.)
//
// So a rank that computes is never taken for dead, however long. The price: who listens at a dead rank's port and never says
// a word is not told from a rank that computes. Whoever waits for that rank then waits for its deadline, or for the ranks of the
// dead one's host, which its system tells (runtime/neighbour_watch.h).
#pragma once

#include <memory>
#include <string>

#include "base/io/net.h"
#include "base/task/task.h"
#include "base/time.h"

namespace aiacc {

// Whoever lost its connection has so long to be back, or its host to give a sign of life.
inline constexpr Duration kReturnLimit = std::chrono::seconds(5);
inline constexpr Duration kConnectLimit = std::chrono::seconds(3);  // of one address

// A connection to `address` within kConnectLimit; throws as Net::connect() does.
Task<std::unique_ptr<io::Stream>> connect_soon(Loop& loop, io::Net& net, io::Address address, Stop& stop);

// What a series of calls at a port has found.
class SignsOfLife {
 public:
  SignsOfLife(Loop& loop, io::Address address) : loop_(loop), address_(std::move(address)), seen_(loop.now()) {}

  const io::Address& address() const noexcept { return address_; }
  void proved() noexcept { seen_ = loop_.now(); }
  // A connection was there, from begin_silence() to end_silence(), and nothing was said on it.
  void begin_silence() noexcept { silent_since_ = loop_.now(); }
  void end_silence() noexcept;
  // After a call that ended with the exception in flight: why the process counts as gone, or "" while it does not.
  std::string verdict() const;
  // The same where a stranger answered, and why it is one.
  std::string stranger(const std::string& why) const;
  // Between two calls.
  Task<void> pause(Stop& stop);

 private:
  Loop& loop_;
  io::Address address_;
  Instant seen_;
  Instant silent_since_{};
  Duration pause_ = std::chrono::milliseconds(10);
};

struct MeetingCaller;

// Returns when the process of `rank`, which takes data connections at `address`, is gone, with how that was seen. The caller's
// secret and job are the roster's.
Task<std::string> watch_for_the_end(MeetingCaller caller, int rank, io::Address address, Stop& stop);

}  // namespace aiacc

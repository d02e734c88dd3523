// Dial: one effort to connect to a peer. It tries all of the peer's addresses, repeatedly and with growing pauses,
// until one authenticates as the peer. In each round the addresses are tried concurrently, each kStagger after the one
// before it (as in "happy eyeballs", RFC 8305), and the first that authenticates is used.
//
// It ends with the loss of the peer when all addresses have answered for Settings::refused_limit that nobody listens
// there: the peer's kernel closes its port when its process ends. Addresses that give no answer say nothing about the
// peer; that is a broken path (MessagePort::broken_path). An address that accepts the connection and stays silent is that
// of a rank that is stopped, or computes without driving its loop.
#pragma once

#include <array>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/task/scope.h"
#include "base/wire/codec.h"
#include "base/wire/handshake.h"
#include "base/wire/record_seal.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/shared.h"

namespace aiacc::tcp {

inline constexpr std::uint16_t kOfClass = TcpPort::kMostStreams;

// What two ends exchange in the handshake: the `terms` of its proofs.
struct Terms {
  // by traffic class: so many messages of the other end, in their order, this end has received whole
  std::array<std::uint64_t, kClasses> received{};
  // which of the pair's connections this one is, from 0; or kOfClass and more: that of a traffic class
  std::uint16_t stream = 0;
  std::uint16_t streams = 1;  // how many connections this end would have
  // earlier connections in the place of this one, as this end has counted them
  std::uint64_t connections = 0;
  wire::Protection protection = wire::Protection::kNone;  // what this end applies after the handshake
  auto fields() {
    return std::tie(received[0], received[1], received[2], received[3], stream, streams, connections, protection);
  }

  std::string text() const;
  static Terms from(std::string_view text);  // throws kProtocol
};

// The error, the same at both ends, for a pair whose ends have different protection settings.
Error unlike_ends(const Shared& shared, int other, wire::Protection others);

class Dial;

class DialOwner {
 public:
  virtual Terms my_terms(const Dial& dial) const noexcept = 0;
  virtual void mark(const Dial& dial, const io::Stream& stream) noexcept = 0;
  // False once there is a connection from another dial in the place of this one.
  virtual bool wants(const Dial& dial) const noexcept = 0;
  virtual void reached(Dial& dial, std::unique_ptr<io::Stream> stream, const Terms& theirs) = 0;
  virtual void out_of_reach(Dial& dial, std::exception_ptr why) noexcept = 0;
  // The last callback: the dial's coroutine has ended. The owner destroys the dial.
  virtual void dial_ended(Dial& dial) noexcept = 0;

 protected:
  ~DialOwner() = default;
};

class Dial final : private Root::Owner {
 public:
  Dial(Shared& shared, DialOwner& owner, int rank) : shared_(shared), owner_(owner), rank_(rank) {}
  ~Dial();
  void start();

  // The proof was sent, so the listener may be accepting this dial: it can no longer be dropped silently.
  bool proof_sent() const noexcept { return proof_sent_; }
  void stop() noexcept;

  // Why the peer is unreachable, with its addresses, once that has lasted for a while; "" before that, and for a peer
  // that is merely silent.
  std::string obstacle() const;
  // nullopt while the peer's host answers: then the peer itself is slow.
  std::optional<BrokenPath> broken_path() const;

 private:
  static constexpr Duration kStagger = std::chrono::milliseconds(50);

  // One attempt at every address.
  struct Round {
    Round(Loop& loop, Stop& parent) : connecting(parent), talking(parent), ended(loop) {}
    Stop connecting;          // stops attempts that have heard nothing yet
    Stop talking;             // stops the others
    Event ended;              // set when an attempt has ended or the next may begin
    bool claimed = false;     // this rank's proof was sent to an address
    bool done = false;        // the round is over
    bool busy = false;        // an address accepted the connection and did not answer
    std::size_t refused = 0;  // addresses where nobody listens
  };

  void root_ended(Root& root, std::exception_ptr error) noexcept override;
  Task<void> run();
  Task<void> try_all();
  Task<void> attempt(io::Address address);
  Task<std::unique_ptr<io::Stream>> connect(io::Address address, Stop& stop);
  // How far an attempt has come.
  struct Stage {
    bool silent = false;   // connected, and the other end has sent nothing
    bool claimed = false;  // this end has sent its proof: the other may accept the connection
    bool proved = false;   // the other end has authenticated
  };
  Task<void> converse(std::unique_ptr<io::Stream> stream, Stage* stage);
  void note(const io::Address& address, const std::string& reason);
  Error unreachable() const;
  std::string reasons() const;

  Shared& shared_;
  DialOwner& owner_;
  int rank_;
  bool proof_sent_ = false;
  bool given_up_ = false;  // the peer considers this rank lost
  bool silent_ = false;    // in the last round an address accepted, and nobody answered
  Instant began_{};
  Instant unanswered_since_{};  // when an address last accepted the connection; at first, the beginning
  Instant refused_since_{};     // the end of the last round in which not every address refused; at first, the beginning
  // Limit for one address; short at first, because the next address may answer at once.
  Duration connect_limit_ = std::chrono::milliseconds(500);
  Duration patience_ = wire::kHandshakeLimit;  // how long to wait for a peer that does not answer
  unsigned attempts_made_ = 0;
  std::set<std::string> doubtful_;              // addresses that took a proof and returned none: tried last
  std::map<std::string, std::string> reasons_;  // by address: why its last attempt failed
  Stop stop_;
  std::optional<Round> round_;
  std::list<std::optional<Root>> attempts_;  // of the round
  std::optional<Root> root_;                 // last: their frames refer to what stands above
};

}  // namespace aiacc::tcp

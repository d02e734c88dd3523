// Dial: one effort to reach a peer: all its addresses, again and again with growing pauses, until one answers with proof or the
// time is over. The addresses are tried at once, each kStagger behind the one before it (as "happy eyeballs", RFC 8305, does),
// and the first that proves to be the peer is taken.
//
// The time does not run out while an address takes the connection and says nothing: that is a rank that is stopped, or that
// computes and looks at nothing. Its host's agent knows when it dies; the operations that wait for it have deadlines.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/task/scope.h"
#include "base/wire/codec.h"
#include "base/wire/handshake.h"
#include "transports/tcp/shared.h"

namespace aiacc::tcp {

// What the two ends of a pair agree on in the handshake: the `terms` of its proofs.
struct Terms {
  std::uint64_t received = 0;     // messages that the speaker has from the other
  std::uint64_t connections = 0;  // that the pair has had before, as the speaker knows
  bool encrypts = false;          // the speaker encrypts what follows the handshake, and expects the same
  auto fields() { return std::tie(received, connections, encrypts); }

  std::string text() const;
  static Terms from(std::string_view text);  // throws kProtocol
};

// What both ends say of a pair of which one encrypts.
Error unlike_ends(const Shared& shared, int other, bool other_encrypts);

class Dial;

class DialOwner {
 public:
  virtual Terms my_terms() const noexcept = 0;
  // False once the pair has a connection that another dial made.
  virtual bool wants(const Dial& dial) const noexcept = 0;
  virtual void reached(Dial& dial, std::unique_ptr<io::Stream> stream, const Terms& theirs) = 0;
  virtual void out_of_reach(Dial& dial, std::exception_ptr why) noexcept = 0;
  // Last: its coroutine has ended. Destroys it.
  virtual void dial_ended(Dial& dial) noexcept = 0;

 protected:
  ~DialOwner() = default;
};

class Dial final : private Root::Owner {
 public:
  Dial(Shared& shared, DialOwner& owner, int rank) : shared_(shared), owner_(owner), rank_(rank) {}
  ~Dial();
  void start();

  // The listener may be about to accept this dial: it can no longer be given up in silence.
  bool proof_sent() const noexcept { return proof_sent_; }
  void stop() noexcept;

  // Why the peer is not reached, with its addresses, once that has lasted; "" before, and for a peer that is only silent.
  std::string obstacle() const;

 private:
  static constexpr Duration kStagger = std::chrono::milliseconds(50);

  // One try of every address.
  struct Round {
    Round(Loop& loop, Stop& parent) : connecting(parent), talking(parent), ended(loop) {}
    Stop connecting;       // of those that have said nothing yet
    Stop talking;          // of the others
    Event ended;           // an attempt has, or the next may begin
    bool claimed = false;  // an address has proved to be the peer's
    bool done = false;     // nothing is left to be done
    bool busy = false;     // an address was taken and did not answer
  };

  void root_ended(Root& root, std::exception_ptr error) noexcept override;
  Task<void> run();
  Task<void> try_all(Instant end);
  Task<void> attempt(io::Address address, Instant end);
  Task<std::unique_ptr<io::Stream>> connect(io::Address address, Instant end, Stop& stop);
  Task<void> converse(std::unique_ptr<io::Stream> stream, bool* claimed, bool* silent);
  void note(const io::Address& address, const std::string& reason);
  Error unreachable() const;

  Shared& shared_;
  DialOwner& owner_;
  int rank_;
  bool proof_sent_ = false;
  bool given_up_ = false;        // by the peer
  bool silent_ = false;          // the last round met nobody but was taken
  std::optional<Error> unlike_;  // why this pair never talks
  Instant began_{};
  // For one address: at first short, because the next one may answer at once.
  Duration connect_limit_ = std::chrono::milliseconds(500);
  Duration patience_ = wire::kHandshakeLimit;  // with a peer that does not answer
  unsigned attempts_made_ = 0;
  std::map<std::string, std::string> reasons_;  // by address: why its last attempt failed
  Stop stop_;
  std::optional<Round> round_;
  std::list<std::optional<Root>> attempts_;  // of the round
  std::optional<Root> root_;                 // last: their frames refer to what stands above
};

}  // namespace aiacc::tcp

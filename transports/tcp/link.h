// Link: all of one peer: what it is to get, what came from it, and the connection, if there is one. It needs a connection
// from the first message on until both ends have said farewell; when one breaks, both ends dial.
//
//   untouched ── post, or a dial accepted ──▶ down ◀──────── broken ─────────┐
//                                              │ └── dialled or accepted ──▶ up ── both said farewell ──▶ left
//                                              └── not reached in time ──▶ lost
//
// Two dials may cross. A listener that has sent its own proof refuses the other's dial if its own rank is the lower one; a
// dialer that is not yet so far gives its dial up. So one of the two is accepted and no more.
#pragma once

#include <list>
#include <memory>

#include "transports/tcp/connection.h"
#include "transports/tcp/dial.h"

namespace aiacc::tcp {

class Link final : private ConnectionOwner, private DialOwner {
 public:
  Link(Shared& shared, int rank) noexcept
      : shared_(shared), rank_(rank), inbound_(shared, rank), outbound_(shared, rank) {}

  // `now`: it is written at once if that can be.
  void post(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion, bool now);
  void begin();  // there is a receiver now
  void withdraw(SendCompletion& completion);
  void revoke(const MessageHeader& header) noexcept;
  void release() noexcept;
  void ask_held_again() noexcept;
  void lose(std::exception_ptr why) noexcept;  // tells the receiver
  void close() noexcept;                       // tells nobody
  std::string obstacle() const { return dial_ != nullptr ? dial_->obstacle() : std::string(); }

  // Says farewell as soon as everything is acknowledged.
  void leave() noexcept;
  bool has_left() const noexcept;

  // A dialer has proved to be this peer: shall it be taken? If so, accept() follows at once.
  wire::Verdict judge(const Terms& theirs) const noexcept;
  Terms my_terms() const noexcept override { return {inbound_.count(), connections_, shared_.encrypts}; }
  void make_way() noexcept;  // for a dialer that is taken: no other connection moves anything from now on
  void accept(std::unique_ptr<io::Stream> stream, const Terms& theirs, wire::Bytes preface);

 private:
  bool is_current(const Connection& connection) const noexcept override { return connection_.get() == &connection; }
  void farewell_came() noexcept override;
  void farewell_written() noexcept override;
  void acknowledged() noexcept override;
  void connection_ended(Connection& connection, std::exception_ptr error) noexcept override;

  bool wants(const Dial& dial) const noexcept override { return dial_.get() == &dial; }
  void reached(Dial& dial, std::unique_ptr<io::Stream> stream, const Terms& theirs) override;
  void out_of_reach(Dial& dial, std::exception_ptr why) noexcept override;
  void dial_ended(Dial& dial) noexcept override;

  void connect();  // unless it is connected or dials already
  void say_farewell() noexcept;
  void settled() noexcept;
  std::exception_ptr has_gone() const noexcept;

  Shared& shared_;
  int rank_;
  Inbound inbound_;
  Outbound outbound_;
  std::uint64_t connections_ = 0;  // ever
  std::exception_ptr lost_;
  bool leaving_ = false;   // this rank
  bool farewell_ = false;  // this rank's is written
  bool peer_left_ = false;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<Dial> dial_;
  // Stopped, and not ended yet.
  std::list<std::unique_ptr<Connection>> old_connections_;
  std::list<std::unique_ptr<Dial>> old_dials_;
};

}  // namespace aiacc::tcp

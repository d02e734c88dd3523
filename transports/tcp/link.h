// Link: all state of one peer: outbound messages, inbound messages, and the connection, if there is one. It needs a
// connection from the first message until both ends have sent their farewell; when a connection breaks, both ends dial.
//
//   untouched ── post, or a dial accepted ──▶ down ◀──────── broken ─────────┐
//                                              │ └── dialled or accepted ──▶ up ── both said farewell ──▶ left
//                                              └── not reached in time ──▶ lost
//
// A connection that delivers data that the peer cannot have sent is also treated as broken, because somebody on the
// path may have altered it. A new connection with new keys replaces it, and unacknowledged messages are sent again.
// After kMostJunk such connections within kJunkTime the peer is lost.
//
// Two dials may cross. If this end's own dial has sent its proof and this end has the lower rank, it refuses the peer's
// dial; if its own dial has not sent the proof yet, it drops its own. So exactly one of the two is accepted.
#pragma once

#include <deque>
#include <list>
#include <memory>

#include "transports/tcp/connection.h"
#include "transports/tcp/dial.h"

namespace aiacc::tcp {

class Link final : private ConnectionOwner, private DialOwner, private Inbound::Readers, private Outbound::Moved {
 public:
  static constexpr std::size_t kMostJunk = 8;
  static constexpr Duration kJunkTime = std::chrono::seconds(60);

  Link(Shared& shared, int rank) noexcept
      : shared_(shared), rank_(rank), inbound_(shared, rank, *this), outbound_(shared, rank) {}

  // `now`: writes it at once if possible.
  void post(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion, bool now);
  void begin();  // there is a receiver now
  void withdraw(Outgoing& message);
  void revoke(const MessageHeader& header) noexcept;
  void release() noexcept;
  void ask_held_again() noexcept;
  void lose(std::exception_ptr why) noexcept;  // notifies the receiver
  void close() noexcept;                       // without notification
  std::optional<BrokenPath> broken_path() const { return dial_ != nullptr ? dial_->broken_path() : std::nullopt; }
  std::string obstacle() const { return dial_ != nullptr ? dial_->obstacle() : std::string(); }

  // Sends the farewell as soon as everything is acknowledged.
  void leave() noexcept;
  bool has_left() const noexcept;

  // Decides whether to accept a dialer that has authenticated as this peer. If so, accept() follows at once.
  wire::Verdict judge(const Terms& theirs) const noexcept;
  Terms my_terms() const noexcept override { return {inbound_.wholes(), connections_, shared_.protection}; }
  void make_way() noexcept;  // before accepting a dialer: no other connection transfers data from now on
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

  void place_changed(Incoming& message) noexcept override;
  void arrived(Incoming& message) noexcept override;
  void moved(const Outgoing& message, std::span<const io::Piece> before) noexcept override;

  void connect();  // starts a dial, unless connected or dialing
  void say_farewell() noexcept;
  void settled() noexcept;
  bool too_much_junk(const Error& last) noexcept;
  std::exception_ptr has_gone() const noexcept;

  Shared& shared_;
  int rank_;
  Inbound inbound_;
  Outbound outbound_;
  std::uint64_t connections_ = 0;  // ever
  std::exception_ptr lost_;
  bool leaving_ = false;   // leave() was called
  bool farewell_ = false;  // this rank's farewell is written
  bool peer_left_ = false;
  std::deque<Instant> junk_;  // the last times at which a connection delivered data that the peer cannot have sent
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<Dial> dial_;
  // Connections that were stopped and have not ended yet.
  std::list<std::unique_ptr<Connection>> old_connections_;
  std::list<std::unique_ptr<Dial>> old_dials_;
};

}  // namespace aiacc::tcp

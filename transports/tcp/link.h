// Link: all state of one peer: outbound messages, inbound messages, and the connections. It needs one connection from the
// first message until both ends have sent their farewell, and opens the others (Settings::streams) when a message is long
// enough to be divided among them. When a connection breaks, both ends dial for another one in its place; meanwhile the
// others carry what it has left. The peer is lost when there is no connection and none can be made.
//
//   untouched ── post, or a dial accepted ──▶ down ◀────── all are broken ───┐
//                                              │ └── dialled or accepted ──▶ up ── both said farewell ──▶ left
//                                              └── not reached in time ──▶ lost
//
// A connection that delivers data that the peer cannot have sent is also treated as broken, because somebody on the
// path may have altered it. A new connection with new keys replaces it, and unacknowledged messages are sent again.
// After kMostJunk such connections within kJunkTime the peer is lost.
//
// Two dials for the same place may cross. If this end's own dial has sent its proof and this end has the lower rank, it refuses
// the peer's dial; if its own dial has not sent the proof yet, it drops its own. So exactly one of the two is accepted.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "transports/tcp/connection.h"
#include "transports/tcp/dial.h"
#include "transports/tcp/stream_count.h"

namespace aiacc::tcp {

class Link final : private ConnectionOwner, private DialOwner, private Inbound::Readers, private Outbound::Moved {
 public:
  static constexpr std::size_t kMostJunk = 8;
  static constexpr Duration kJunkTime = std::chrono::seconds(60);

  Link(Shared& shared, int rank)
      : shared_(shared),
        rank_(rank),
        inbound_(shared, rank, *this),
        outbound_(shared, rank),
        count_(shared.settings.streams.least, shared.settings.streams.most),
        places_(static_cast<std::size_t>(shared.settings.streams.most) + kClasses) {
    set_homes();
  }

  // `now`: writes it at once if possible.
  void post(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion, bool now);
  void begin();  // there is a receiver now
  void withdraw(Outgoing& message) { outbound_.withdraw(message, *this); }
  void revoke(const MessageHeader& header) noexcept;
  void release() noexcept;
  void ask_held_again() noexcept;
  void lose(std::exception_ptr why) noexcept;  // notifies the receiver
  void close() noexcept;                       // without notification
  std::optional<BrokenPath> broken_path() const;
  std::string obstacle() const;

  int connections() const noexcept {
    int count = 0;
    each_connection([&count](const Connection&) { ++count; });
    return count;
  }

  void count_traffic(std::vector<ConnectionTraffic>& counted) const {
    for (const Place& place : places_) {
      if (place.connections > 0)
        counted.push_back({rank_, stream_of(place), place.carried.sent, place.carried.received});
    }
  }
  int wanted_connections() const noexcept { return static_cast<int>(in_use_); }

  int chunks_in_flight() const noexcept { return outbound_.chunks_in_flight(); }
  // Sends the farewell as soon as everything is acknowledged.
  void leave() noexcept;
  bool has_left() const noexcept;

  // Decides whether to accept a dialer that has authenticated as this peer. If so, accept() follows at once.
  wire::Verdict judge(const Terms& theirs) const noexcept;
  Terms my_terms(std::size_t stream) const noexcept;
  // Marks what this end sends over the connection of this number.
  void mark(std::size_t stream, const io::Stream& socket) const noexcept;
  io::TrafficMarks marks_of(std::size_t stream) const noexcept;
  // The dialer's connection takes the place that its terms name.
  void accept(std::unique_ptr<io::Stream> stream, const Terms& theirs, wire::Bytes preface);

 private:
  // Of one connection at a time.
  struct Place {
    std::uint64_t connections = 0;  // ever
    Carried carried;                // by them
    std::unique_ptr<Connection> connection;
    std::unique_ptr<Dial> dial;
  };

  void farewell_came() noexcept override;
  void farewell_written() noexcept override;
  void acknowledged() noexcept override;
  void chunk_came() noexcept override;
  void look_later() noexcept override;
  void connection_ended(Connection& connection, std::exception_ptr error) noexcept override;

  Terms my_terms(const Dial& dial) const noexcept override;
  void mark(const Dial& dial, const io::Stream& stream) noexcept override;
  bool wants(const Dial& dial) const noexcept override { return place_of(dial) != nullptr; }
  void reached(Dial& dial, std::unique_ptr<io::Stream> stream, const Terms& theirs) override;
  void out_of_reach(Dial& dial, std::exception_ptr why) noexcept override;
  void dial_ended(Dial& dial) noexcept override;

  void place_changed(Incoming& message) noexcept override;
  void arrived(Incoming& message) noexcept override;
  void moved(const Outgoing& message, std::span<const io::Piece> before) noexcept override;

  template <class Fn>
  void each_connection(Fn&& fn) const {
    for (const Place& place : places_) {
      if (place.connection != nullptr) fn(*place.connection);
    }
  }
  // Places: those that all streams share, and then one for each class.
  std::size_t streams() const noexcept { return places_.size() - kClasses; }
  std::size_t place_of_stream(std::size_t stream) const noexcept {
    if (stream < streams()) return stream;
    return stream >= kOfClass && stream < kOfClass + kClasses ? streams() + stream - kOfClass : places_.size();
  }
  std::size_t stream_of(const Place& place) const noexcept {
    const auto index = static_cast<std::size_t>(&place - places_.data());
    return index < streams() ? index : kOfClass + index - streams();
  }
  bool has_own(std::size_t traffic) const noexcept { return homes_[traffic] != 0; }
  void set_homes() noexcept;
  unsigned classes_at(const Place& place) const noexcept;
  void take_leads(Connection& connection) noexcept;
  void fall_back(bool anywhere) noexcept;
  void choose_leads() noexcept;
  void adapt() noexcept;
  void use(std::size_t connections) noexcept;
  void look_for_losses() noexcept;
  void look_for_losses(const Place& place, const Connection& connection) noexcept;
  void keep_unsent_low(Connection& connection) noexcept;
  void wake_all() noexcept;
  const Place* place_of(const Dial& dial) const noexcept;
  const Place* any_connected() const noexcept;
  void connect(std::size_t stream);  // starts a dial, unless connected or dialing
  void connect_missing();
  void open_all();
  void make_way(Place& place) noexcept;
  void make_way_everywhere() noexcept;
  void retire(Connection& connection) noexcept;
  void adopt(Place& place, std::unique_ptr<io::Stream> stream, const Terms& theirs, wire::Bytes preface);
  void say_farewell() noexcept;
  void settled() noexcept;
  bool too_much_junk(const Error& last) noexcept;
  std::exception_ptr has_gone() const noexcept;

  // Has all connections look for chunks that are late.
  struct Look final : Timer {
    explicit Look(Link& link) noexcept : owner(link) {}
    void expired() noexcept override { owner.wake_all(); }
    Link& owner;
  };
  static constexpr Duration kLookAgain = std::chrono::milliseconds(2);
  static constexpr Duration kLossesAgain = std::chrono::seconds(1);
  static constexpr Duration kLeadAtLeast = std::chrono::milliseconds(100);
  static constexpr Duration kPeriod = std::chrono::milliseconds(50);  // in which long messages are under way
  // Acknowledgements, headers and urgent classes wait behind what is written and not sent: 4 ms at 120 Mbit/s.
  static constexpr int kUnsentBytes = 64 << 10;

  Shared& shared_;
  int rank_;
  Look look_{*this};
  Instant leads_stay_{};  // until then
  Instant losses_seen_{};
  Inbound inbound_;
  Outbound outbound_;
  std::exception_ptr lost_;
  bool leaving_ = false;   // leave() was called
  bool farewell_ = false;  // this rank's farewell is written
  bool peer_left_ = false;
  bool long_messages_ = false;  // there was one that goes in chunks
  StreamCount count_;
  std::size_t in_use_ = 1;    // places that should have a connection
  Duration period_busy_{};    // the meter when the present period of count_ began
  std::deque<Instant> junk_;  // the last times at which a connection delivered data that the peer cannot have sent
  std::vector<Place> places_;
  std::array<std::size_t, kClasses> homes_{};  // by class: the first place where its messages go
  // Connections that were stopped and have not ended yet.
  std::list<std::unique_ptr<Connection>> old_connections_;
  std::list<std::unique_ptr<Dial>> old_dials_;
};

}  // namespace aiacc::tcp

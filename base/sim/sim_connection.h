// SimConnection: both directions of one simulated stream. Its two ends share it; either may be destroyed first.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/net.h"
#include "base/sim/sim_net.h"

namespace aiacc::sim {

class SimConnection {
 public:
  SimConnection(SimNetwork& network, const SimNetwork::End& one, const SimNetwork::End& other);
  ~SimConnection();

  struct Side {
    SimLoop* loop;
    NodeId node;
    int host;
    io::PeerIdentity identity;
    bool open = true;
    std::string name;  // the stream's description at this side
  };
  const Side& side(int index) const noexcept { return sides_[static_cast<std::size_t>(index)]; }

  void hand_over(int index, const SimNetwork::End& to) noexcept {
    Side& its = sides_[static_cast<std::size_t>(index)];
    its.loop = &to.loop;
    its.node = to.loop.node();
    its.identity = to.identity;
  }
  void set_name(int index, std::string name) { sides_[static_cast<std::size_t>(index)].name = std::move(name); }

  // Requests of the stream at side `index`.
  bool try_read(int index, io::IoAwait& io);
  bool try_write(int index, io::IoAwait& io);
  // An acknowledgement takes no time.
  io::FlowState flow(int index) const noexcept;
  void wait(int index, io::IoAwait& io) noexcept;
  void cancel(int index, io::IoAwait& io) noexcept;
  void end_writes(int index) noexcept;
  void close(int index) noexcept;

  bool between(int host, int other) const noexcept;
  void resume() noexcept;  // after a cut link was healed
  void cap(std::uint64_t bytes_per_second) noexcept { bytes_per_second_ = bytes_per_second; }
  void break_off() noexcept {
    if (!broken_) break_now();
  }

 private:
  // The direction from side `from` to the other. Bytes are in flight in pieces; the last one may be the end of the
  // stream.
  struct Piece {
    std::vector<std::byte> bytes;
    bool end = false;
    Instant arrives{};  // while it is in `leaving`: at the host's own line
  };
  struct Direction {
    struct Arrival final : Event {
      explicit Arrival(Direction& direction) noexcept : Event(EventKind::kStream), owner(direction) {}
      void happen() noexcept override { owner.connection->arrive(owner); }
      Direction& owner;
    };
    struct Departure final : Event {
      explicit Departure(Direction& direction) noexcept : Event(EventKind::kStream), owner(direction) {}
      void happen() noexcept override { owner.connection->depart(owner); }
      Direction& owner;
    };
    struct Room final : Event {  // the writer learns that the reader has freed space, or is gone
      explicit Room(Direction& direction) noexcept : Event(EventKind::kStream), owner(direction) {}
      void happen() noexcept override { owner.connection->serve_writer(owner); }
      Direction& owner;
    };
    SimConnection* connection = nullptr;
    int from = 0;
    std::deque<Piece> leaving;  // held back by the stream's bandwidth, where the host's line is limited
    std::deque<Piece> flying;
    std::deque<std::byte> ready;
    std::size_t used = 0;       // bytes in flight or unread
    std::uint64_t written = 0;  // bytes, ever
    std::uint64_t arrived = 0;  // of these
    Instant link_free{};
    bool ended = false;      // the writer has ended it
    bool end_came = false;   // the reader has seen the end
    bool abandoned = false;  // the reader is gone
    bool reset = false;      // the writer knows that the reader is gone
    io::IoAwait* reader = nullptr;
    io::IoAwait* writer = nullptr;
    Departure departure{*this};
    Arrival arrival{*this};
    Room room{*this};
  };

  Direction& out_of(int index) noexcept { return directions_[static_cast<std::size_t>(index)]; }
  Direction& into(int index) noexcept { return directions_[static_cast<std::size_t>(1 - index)]; }
  void send(Direction& direction, Piece piece) noexcept;
  void leave(Direction& direction, const Piece& piece) noexcept;
  void depart(Direction& direction) noexcept;
  void alter(Piece& piece) noexcept;
  void schedule_arrival(Direction& direction) noexcept;
  void arrive(Direction& direction) noexcept;
  void serve_reader(Direction& direction) noexcept;
  void break_now() noexcept;
  void break_side(int index) noexcept;
  void serve_writer(Direction& direction) noexcept;
  void tell_writer(Direction& direction) noexcept;

  SimNetwork& network_;
  std::uint64_t number_;
  std::uint64_t bytes_per_second_;
  std::optional<std::uint64_t> break_after_;  // breaks after this many more bytes have arrived
  std::optional<std::uint64_t> alter_after_;
  struct LateBreak final : Event {
    explicit LateBreak(SimConnection& connection) noexcept : Event(EventKind::kStream), owner(connection) {}
    void happen() noexcept override { owner.break_side(side); }
    SimConnection& owner;
    int side = 0;
  };
  bool broken_ = false;                 // no more bytes are delivered
  std::array<bool, 2> knows_broken_{};  // by side
  LateBreak late_break_{*this};
  std::array<Side, 2> sides_;
  std::array<Direction, 2> directions_;
};

}  // namespace aiacc::sim

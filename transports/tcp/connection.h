// Connection: one live, authenticated stream between two ranks: a coroutine that reads and one that writes. It holds no
// state that must outlive it: messages are in its link's Outbound and Inbound. It pulls what it writes from the Outbound, and
// acknowledges what it reads: what came over it is acknowledged over it, so an end of the connection loses either both or none.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/task/scope.h"
#include "base/wire/codec.h"
#include "transports/qos/delay_window.h"
#include "transports/tcp/inbound.h"
#include "transports/tcp/outbound.h"

namespace aiacc::tcp {

class Connection;

// Callbacks from a connection to its link.
class ConnectionOwner {
 public:
  // The peer's farewell has arrived: end of stream follows.
  virtual void farewell_came() noexcept = 0;
  // Everything is written, including this rank's farewell.
  virtual void farewell_written() noexcept = 0;
  // The peer has acknowledged something.
  virtual void acknowledged() noexcept = 0;
  // A message comes in chunks.
  virtual void chunk_came() noexcept = 0;
  // There is nothing to write now, and there may be soon although nothing happens: a chunk that is late elsewhere.
  virtual void look_later() noexcept = 0;
  // Called once, when both coroutines have ended. `error` is null for an end of stream between two messages. May
  // destroy the connection.
  virtual void connection_ended(Connection& connection, std::exception_ptr error) noexcept = 0;

 protected:
  ~ConnectionOwner() = default;
};

// Bytes, of all connections at one place.
struct Carried {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

class Connection final : public PartHolder, private Root::Owner {
 public:
  // `preface`, the last message of the handshake, is written first. Counts in `carried`.
  Connection(Shared& shared, ConnectionOwner& owner, std::unique_ptr<io::Stream> stream, wire::Bytes preface,
             Inbound& inbound, Outbound& outbound, Carried& carried);
  ~Connection();
  void start();

  void wake_writer() noexcept { output_.set(); }
  void write_now() noexcept;                             // the same, but writes directly if the writer coroutine waits
  void room_again() noexcept { room_.set(); }            // fewer bytes are held now
  void place_changed(const Incoming& message) noexcept;  // as Inbound::Readers
  void arrived(const Incoming& message) noexcept;
  void moved(const Outgoing& message, std::span<const io::Piece> before) noexcept;  // as Outbound::Moved
  void let_go(const Part& part) noexcept override;
  Carrier& carrier() noexcept { return carrier_; }
  void keep_unsent_below(int bytes) noexcept { stream_->keep_unsent_below(bytes); }
  // Before it is started: no more is ever under way than makes others wait so long. Without a limit of its own it has one for bulk
  // and background while latency is in use; zero: not even then.
  void limit_delay(Duration limit) {
    beside_latency_ = false;
    if (limit > Duration{}) {
      window_.emplace(limit);
    } else {
      carrier_.window = ~std::uint64_t{0};
    }
  }
  // Bytes that the peer's host has acknowledged since the last call.
  std::uint64_t newly_acknowledged() noexcept {
    const std::uint64_t now = stream_->flow().acknowledged;
    return now - std::exchange(acknowledged_, now);
  }
  // Segments, by this end's system; not those of the handshake, which were not of the class yet.
  std::uint64_t sent_again() const noexcept { return stream_->flow().sent_again - sent_again_before_; }
  void mark(const io::TrafficMarks& marks) noexcept { shared_.mark(*stream_, marks); }
  // It is not its link's connection any more: what it carried waits for another one.
  void retire() noexcept;
  void ask() noexcept;       // have the peer acknowledge at once what it has
  void farewell() noexcept;  // when everything is acknowledged: nothing is written after it
  // Ends both coroutines soon; no memory of others is touched from now on.
  void stop(std::exception_ptr why) noexcept { stop_.request(std::move(why)); }

 private:
  // A message of 16 KiB comes by one read with its headers, and an acknowledgement before it.
  static constexpr std::size_t kStagingBytes = (16 << 10) + 512;
  // If more than this of a payload is outstanding, it is read directly into its destination; less goes through the
  // staging memory, together with the bytes behind it.
  static constexpr std::size_t kDirectBytes = 4 << 10;
  static constexpr std::size_t kBatchBytes = 64 << 10;  // of messages that are written together
  static constexpr std::size_t kMaxPieces = 64;
  static constexpr std::size_t kSpare = 8;  // for pieces that are cut in two
  // An acknowledgement is sent after this many messages at the latest, and at once after a message that its sender has
  // not copied.
  static constexpr std::uint64_t kAckMessages = 64;
  static constexpr std::uint64_t kAckBytes = 256 << 10;

  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  Task<void> read();
  bool has_staged(std::size_t bytes) const noexcept { return end_ - begin_ >= bytes; }
  std::span<std::byte> space_for_header() noexcept;
  bool staged(std::size_t moved);
  std::span<std::byte> place() const noexcept;
  std::uint64_t take_staged(std::uint64_t done) noexcept;
  Task<bool> read_payload(std::uint64_t done);
  void control(const Frame& frame);
  bool take_whole(const MessageHeader& header);
  void count_came(bool whole) noexcept;
  void came(bool whole) noexcept;

  Task<void> write();
  bool keeps_to_window() noexcept;
  Task<void> write_within_window();
  bool gather();
  std::span<const io::Piece> within(std::uint64_t bytes) noexcept;
  bool batch_is_written() const noexcept { return piece_begin_ == piece_end_; }
  void add_acks() noexcept;
  void add_frame(const Frame& frame, std::span<std::byte, kFrameBytes> into) noexcept;
  void add_part(Part& part) noexcept;
  void add_piece(Part* part, io::Piece piece, bool last) noexcept;
  void advance(std::size_t bytes) noexcept;

  bool current() const noexcept { return !retired_; }

  Shared& shared_;
  ConnectionOwner& owner_;
  std::unique_ptr<io::Stream> stream_;
  std::uint64_t sent_again_before_;
  std::uint64_t acknowledged_ = 0;  // at the last newly_acknowledged()
  wire::Bytes preface_;
  Inbound& inbound_;
  Outbound& outbound_;
  Carried& carried_;
  Carrier carrier_;
  Stop stop_;
  std::optional<Stop> place_stop_;  // for reads into a destination that can be revoked
  Event output_;
  Event room_;

  std::array<std::byte, kStagingBytes> staging_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  Frame frame_;                  // that is being read
  Incoming* current_ = nullptr;  // its message; null if its bytes are for nobody
  bool said_farewell_ = false;   // the peer
  std::uint64_t unsaid_messages_ = 0;
  std::uint64_t unsaid_bytes_ = 0;
  std::array<std::pair<std::uint64_t, std::uint64_t>, kClasses> said_{};  // by class: whole messages and headers
  std::vector<Frame>
      came_before_others_;  // acknowledgements of parts of messages that are not whole, or not in their turn

  bool ack_due_ = false;
  bool ask_due_ = false;
  bool farewell_due_ = false;
  bool farewell_in_batch_ = false;
  struct Mark {
    Part* part;  // null: a frame of the connection itself
    bool last;   // the last piece of its part
  };
  std::array<io::Piece, kMaxPieces + kSpare> pieces_;  // of the batch that is being written
  std::array<Mark, kMaxPieces + kSpare> marks_;
  std::size_t piece_begin_ = 0;
  std::size_t piece_end_ = 0;
  bool writer_waits_ = false;  // waits for something to write, or was woken and has not looked yet
  static constexpr std::size_t kMostAcks = 16;
  std::array<std::byte, kMostAcks * kFrameBytes> front_;  // the batch's own frames
  std::size_t front_bytes_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> copies_;  // of parts of the batch that were let go
  std::array<std::byte, kFrameBytes> ask_frame_;
  std::array<std::byte, kFrameBytes> farewell_frame_;

  bool beside_latency_ = true;   // the window is there while latency is in use
  bool waits_its_turn_ = false;  // the batch has something of bulk or background
  std::optional<DelayWindow> window_;
  std::uint64_t room_in_window_ = 0;  // bytes that may be written before the next look

  bool retired_ = false;
  int running_ = 0;
  std::exception_ptr error_;
  std::optional<Root> reader_;  // last: their frames refer to the members above
  std::optional<Root> writer_;
};

}  // namespace aiacc::tcp

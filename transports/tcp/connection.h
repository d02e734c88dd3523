// Connection: one live, authenticated stream between two ranks: a coroutine that reads and one that writes. It holds no
// state that must outlive it: messages are in its link's Outbound and Inbound.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "base/task/scope.h"
#include "base/wire/codec.h"
#include "transports/tcp/inbound.h"
#include "transports/tcp/outbound.h"

namespace aiacc::tcp {

class Connection;

// Callbacks from a connection to its link.
class ConnectionOwner {
 public:
  virtual bool is_current(const Connection& connection) const noexcept = 0;
  // The peer's farewell has arrived: end of stream follows.
  virtual void farewell_came() noexcept = 0;
  // Everything is written, including this rank's farewell.
  virtual void farewell_written() noexcept = 0;
  virtual void acknowledged() noexcept = 0;
  // Called once, when both coroutines have ended. `error` is null for an end of stream between two messages. May
  // destroy the connection.
  virtual void connection_ended(Connection& connection, std::exception_ptr error) noexcept = 0;

 protected:
  ~ConnectionOwner() = default;
};

class Connection final : private Root::Owner, private Outbound::Moved {
 public:
  // `preface`, the last message of the handshake, is written first.
  Connection(Shared& shared, ConnectionOwner& owner, std::unique_ptr<io::Stream> stream, wire::Bytes preface,
             Inbound& inbound, Outbound& outbound);
  ~Connection();
  void start();

  void wake_writer() noexcept { output_.set(); }
  void write_now() noexcept;                   // the same, but writes directly if the writer coroutine waits
  void room_again() noexcept { room_.set(); }  // fewer bytes are held now
  void place_revoked() noexcept;
  void withdraw(Outgoing& message) { outbound_.withdraw(message, this); }
  void ask() noexcept;       // have the peer acknowledge at once what it has
  void farewell() noexcept;  // when everything is acknowledged: nothing is written after it
  // Ends both coroutines soon; no memory of others is touched from now on.
  void stop(std::exception_ptr why) noexcept { stop_.request(std::move(why)); }

 private:
  static constexpr std::size_t kStagingBytes = 16 << 10;
  // If more than this of a payload is outstanding, it is read directly into its destination; less goes through the
  // staging memory, together with the bytes behind it.
  static constexpr std::size_t kDirectBytes = 4 << 10;
  static constexpr std::size_t kBatchBytes = 64 << 10;  // of messages that are written together
  static constexpr std::size_t kMaxPieces = 64;
  // An acknowledgement is sent after this many messages at the latest, and at once after a message that its sender has
  // not copied.
  static constexpr std::uint64_t kAckMessages = 64;
  static constexpr std::uint64_t kAckBytes = 256 << 10;

  void root_ended(Root& root, std::exception_ptr error) noexcept override;
  void moved(const Outgoing& message, std::span<const io::Piece> before) noexcept override;

  Task<void> read();
  std::span<std::byte> space_for_header() noexcept;
  bool staged(std::size_t moved);
  std::uint64_t take_staged(std::uint64_t done, std::uint64_t length) noexcept;
  Task<bool> read_payload(std::uint64_t done, std::uint64_t length);
  void control(const MessageHeader& header);
  void came(const MessageHeader& header) noexcept;

  Task<void> write();
  bool gather();
  bool batch_is_written() const noexcept { return piece_begin_ == piece_end_; }
  void add_ack(std::array<std::byte, kHeaderBytes>& into, std::uint32_t flags) noexcept;
  void add_piece(Outgoing* message, io::Piece piece, bool last) noexcept;
  void advance(std::size_t bytes) noexcept;

  bool current() const noexcept { return owner_.is_current(*this); }

  Shared& shared_;
  ConnectionOwner& owner_;
  std::unique_ptr<io::Stream> stream_;
  wire::Bytes preface_;
  Inbound& inbound_;
  Outbound& outbound_;
  Stop stop_;
  std::optional<Stop> place_stop_;  // for reads into a destination that can be revoked
  Event output_;
  Event room_;

  std::array<std::byte, kStagingBytes> staging_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool said_farewell_ = false;  // the peer
  std::uint64_t unsaid_messages_ = 0;
  std::uint64_t unsaid_bytes_ = 0;

  bool ack_due_ = false;
  bool ask_due_ = false;
  bool farewell_due_ = false;
  bool farewell_in_batch_ = false;
  struct Mark {
    Outgoing* message;  // null: a header of the connection itself
    bool last;          // the last piece of its message
  };
  std::array<io::Piece, kMaxPieces> pieces_;  // of the batch that is being written
  std::array<Mark, kMaxPieces> marks_;
  std::size_t piece_begin_ = 0;
  std::size_t piece_end_ = 0;
  bool writer_waits_ = false;                  // waits for something to write, or was woken and has not looked yet
  std::array<std::byte, kHeaderBytes> front_;  // the batch's own headers
  std::array<std::byte, kHeaderBytes> back_;

  int running_ = 0;
  std::exception_ptr error_;
  std::optional<Root> reader_;  // last: their frames refer to the members above
  std::optional<Root> writer_;
};

}  // namespace aiacc::tcp

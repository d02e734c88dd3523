// Outbound: what one peer is to get. A message waits in the queue of its class; when it is begun it gets the next number and
// stays, in that order, until the peer says that it has it. A new connection begins with the first that the peer lacks.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <list>
#include <span>
#include <vector>

#include "base/io/net.h"
#include "transports/tcp/data_header.h"
#include "transports/tcp/shared.h"

namespace aiacc::tcp {

struct Outgoing {
  static constexpr std::size_t kMaxPieces = 8;  // a message of more is copied
  bool copied = false;
  std::vector<std::byte> bytes;              // the header, and the payload if it was copied
  std::array<io::Piece, kMaxPieces> pieces;  // the payload where its owner has it, or in `copy`
  std::size_t piece_count = 0;
  std::vector<std::byte> copy;  // of a withdrawn message
  std::size_t payload_bytes = 0;
  SendCompletion* completion = nullptr;  // null: nobody waits any more
};

class Outbound {
 public:
  Outbound(Shared& shared, int rank) noexcept : shared_(shared), rank_(rank) {}

  void add(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion);
  bool empty() const noexcept { return unacknowledged_.empty() && !waiting(); }  // the peer has everything
  bool waiting() const noexcept {  // something is still to be written on the present connection
    return resend_ != unacknowledged_.end() || !queues_[0].empty() || !queues_[1].empty() || !queues_[2].empty();
  }

  // The next message to be written, which is begun now; null if there is none. It stays where it is until wrote() has counted
  // it and its acknowledgement came.
  Outgoing* next() noexcept;
  // The next one of those begun, `message`, lies whole with the system. Completes it if it was copied: earlier, and a rank that
  // goes on with other things would keep it to itself.
  void wrote(Outgoing& message) noexcept;
  // The peer has so many messages. False if that cannot be.
  bool acknowledged(std::uint64_t count) noexcept;
  // A new connection, at whose beginning the peer has so many.
  bool resume(std::uint64_t count) noexcept;

  // Gives up what was posted with `completion`: what was not begun is forgotten; the rest goes on from a copy, and `moved` is
  // told of each message whose bytes are elsewhere now.
  class Moved {
   public:
    virtual void moved(const Outgoing& message, std::span<const io::Piece> before) noexcept = 0;

   protected:
    ~Moved() = default;
  };
  void withdraw(SendCompletion& completion, Moved* moved);
  void fail(const std::exception_ptr& why) noexcept;
  void forget() noexcept;  // nobody is told

 private:
  using Messages = std::list<Outgoing>;
  void settle() noexcept;
  void tell(Outgoing& message, const std::exception_ptr& error) noexcept;
  void recycle(Messages& from, Messages::iterator message) noexcept;

  Shared& shared_;
  int rank_;
  std::array<Messages, 3> queues_;                     // by class
  Messages unacknowledged_;                            // begun
  Messages::iterator resend_ = unacknowledged_.end();  // of those: the next to be written
  Messages spare_;
  // Messages, ever. settled_ <= written_ <= begun_; said_ is the peer's last word.
  std::uint64_t begun_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t said_ = 0;
  std::uint64_t settled_ = 0;
};

}  // namespace aiacc::tcp

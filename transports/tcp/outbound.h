// Outbound: the messages for one peer. A message waits in the queue of its class; when its transmission begins it gets
// the next number, and it is kept, in that order, until the peer acknowledges it. A new connection begins with the
// first message that the peer lacks.
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

struct Outgoing : SendCompletion::Message {
  static constexpr std::size_t kMaxPieces = 8;  // a message of more is copied
  bool copied = false;
  std::vector<std::byte> bytes;              // the header, and the payload if it was copied
  std::array<io::Piece, kMaxPieces> pieces;  // the payload, in its owner's memory or in `copy`
  std::size_t piece_count = 0;
  std::vector<std::byte> copy;  // of a withdrawn message
  std::size_t payload_bytes = 0;
  int to = 0;                            // rank
  std::list<Outgoing>* queue = nullptr;  // where it waits; null once it was begun
  std::list<Outgoing>::iterator self{};  // in the list where it is
};

class Outbound {
 public:
  Outbound(Shared& shared, int rank) noexcept : shared_(shared), rank_(rank) {}

  void add(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion);
  bool empty() const noexcept { return unacknowledged_.empty() && !waiting(); }  // the peer has acknowledged everything
  bool waiting() const noexcept {  // something must still be written on this connection
    return resend_ != unacknowledged_.end() || !queues_[0].empty() || !queues_[1].empty() || !queues_[2].empty();
  }

  // Begins the next message to be written and returns it; null if there is none. Its address stays valid until wrote()
  // has counted it and its acknowledgement has arrived.
  Outgoing* next() noexcept;
  // The kernel has all of `message`, the next of those begun. If the message was copied, it is completed here and not
  // earlier, because a rank that then computes drives nothing and would never send it.
  void wrote(Outgoing& message) noexcept;
  // The peer has acknowledged `count` messages. False if that is impossible.
  bool acknowledged(std::uint64_t count) noexcept;
  // A new connection begins, and the peer has `count` messages. False if that is impossible.
  bool resume(std::uint64_t count) noexcept;

  // Gives up a message of this peer that was not told yet: if it was not begun it is forgotten; otherwise it goes on from a
  // copy, and `moved` is told that its bytes are elsewhere now.
  class Moved {
   public:
    virtual void moved(const Outgoing& message, std::span<const io::Piece> before) noexcept = 0;

   protected:
    ~Moved() = default;
  };
  void withdraw(Outgoing& message, Moved* moved);
  void fail(const std::exception_ptr& why) noexcept;
  void forget() noexcept;  // drops everything without notification

 private:
  using Messages = std::list<Outgoing>;
  void settle() noexcept;
  void tell(Outgoing& message, const std::exception_ptr& error) noexcept;
  void recycle(Messages& from, Messages::iterator message) noexcept;

  Shared& shared_;
  int rank_;
  std::array<Messages, 3> queues_;                     // by class
  Messages unacknowledged_;                            // begun
  Messages::iterator resend_ = unacknowledged_.end();  // the next of them to be written
  Messages spare_;
  // Numbers of messages, ever. settled_ <= written_ <= begun_; said_ is the count that the peer acknowledged last.
  std::uint64_t begun_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t said_ = 0;
  std::uint64_t settled_ = 0;
};

}  // namespace aiacc::tcp

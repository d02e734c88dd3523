// Inbound: the messages that arrive from one peer. A message is begun when its header arrives; it is then placed, held
// or dropped as the receiver decides, and counted when its last byte has arrived. If the connection breaks before that,
// the message stays begun: the next connection delivers it again from its first byte, into the same destination.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "transports/tcp/shared.h"

namespace aiacc::tcp {

class Inbound {
 public:
  Inbound(Shared& shared, int rank) noexcept : shared_(shared), rank_(rank) {}

  std::uint64_t count() const noexcept { return count_; }  // complete messages, ever
  bool holds_too_much() const noexcept { return held_bytes_ > TcpPort::kHeldBytes; }

  // Asks the receiver where the message goes, unless the message was begun before. Throws kProtocol if a different one
  // was.
  void begin(const MessageHeader& header);
  // The payload's destination; empty if there is none. Changes when the destination is revoked.
  std::span<std::byte> place() const noexcept { return place_; }
  // The last byte of the message has arrived.
  void finish() noexcept;

  // The receiver takes the destination for this header back. False if no such message is being placed.
  bool revoke(const MessageHeader& header) noexcept;
  void release() noexcept { ++releases_; }
  void ask_again() noexcept;  // offers held messages again; called soon after release()
  void forget() noexcept;

 private:
  using Action = MessageReceiver::Placement::Action;
  struct Held {
    MessageHeader header;
    std::vector<std::byte> bytes;
  };

  Shared& shared_;
  int rank_;
  std::uint64_t count_ = 0;
  bool begun_ = false;
  bool revoked_ = false;
  Action action_ = Action::kDrop;
  MessageHeader header_;  // of the message that was begun
  std::span<std::byte> place_;
  std::uint64_t releases_ = 0;
  std::uint64_t releases_at_begin_ = 0;
  std::list<Held> arriving_;  // at most one: a held message that is incomplete
  std::list<Held> held_;      // oldest first
  std::size_t held_bytes_ = 0;
};

}  // namespace aiacc::tcp

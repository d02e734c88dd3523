// Inbound: what comes from one peer. A message is begun when its header came, placed, held or dropped as the receiver says,
// and counted when its last byte came. If its connection breaks before that, it stays begun: the next connection brings it
// again from its first byte, and it goes where it went.
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

  std::uint64_t count() const noexcept { return count_; }  // of whole messages, ever
  bool holds_too_much() const noexcept { return held_bytes_ > TcpPort::kHeldBytes; }

  // Asks the receiver, unless this message was begun before. Throws kProtocol if another one was.
  void begin(const MessageHeader& header);
  // Where its payload goes; empty if nowhere. Changes when the place is revoked.
  std::span<std::byte> place() const noexcept { return place_; }
  // Its last byte came.
  void finish() noexcept;

  // The receiver takes the place of this header back. False if no such message is being placed.
  bool revoke(const MessageHeader& header) noexcept;
  void release() noexcept { ++releases_; }
  void ask_again() noexcept;  // what is held; soon after release()
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
  MessageHeader header_;  // of the message that is begun
  std::span<std::byte> place_;
  std::uint64_t releases_ = 0;
  std::uint64_t releases_at_begin_ = 0;
  std::list<Held> arriving_;  // at most one: a held message that is not whole
  std::list<Held> held_;      // oldest first
  std::size_t held_bytes_ = 0;
};

}  // namespace aiacc::tcp

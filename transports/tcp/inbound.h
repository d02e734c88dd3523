// Inbound: the messages that arrive from one peer. A message is begun when its header arrives: it is then placed, held or
// dropped as the receiver decides. Its bytes may come over any connections, in any order; each is counted once, and the message
// has arrived with the last of them. It stays begun if a connection ends before that, and others bring what is missing.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "transports/tcp/frame.h"
#include "transports/tcp/shared.h"

namespace aiacc::tcp {

// A message that was begun and lacks bytes.
struct Incoming {
  using Action = MessageReceiver::Placement::Action;
  std::uint64_t number = 0;
  Action action = Action::kDrop;
  bool revoked = false;
  MessageHeader header;
  std::span<std::byte>
      place;  // the payload's destination; empty if there is none. Changes when the destination is revoked.
  std::uint64_t missing = 0;  // bytes
  std::vector<std::pair<std::uint64_t, std::uint64_t>>
      ranges;  // that have arrived: begin and end, ascending, not adjacent
};

class Inbound {
 public:
  // The connections, which may be reading into the place of a message.
  class Readers {
   public:
    // The place changes or is given back: nothing is written to the former one from now on.
    virtual void place_changed(Incoming& message) noexcept = 0;
    // The message has arrived, and the bytes of it that other connections still bring are for nobody.
    virtual void arrived(Incoming& message) noexcept = 0;

   protected:
    ~Readers() = default;
  };

  Inbound(Shared& shared, int rank, Readers& readers) noexcept : shared_(shared), rank_(rank), readers_(readers) {}

  int rank() const noexcept { return rank_; }
  // By class: all messages up to this number have arrived, and the headers of all up to this number.
  std::uint64_t whole(std::size_t traffic) const noexcept { return classes_[traffic].whole; }
  std::uint64_t headers(std::size_t traffic) const noexcept { return classes_[traffic].headers; }
  std::array<std::uint64_t, kClasses> wholes() const noexcept { return {whole(0), whole(1), whole(2), whole(3)}; }
  bool holds_too_much() const noexcept { return held_bytes_ > TcpPort::kHeldBytes; }
  // The message of this frame is new and must wait until less is held. It need not while others lack bytes, which may be
  // behind it on the same connection.
  bool must_wait(const Frame& frame) const noexcept { return is_new(frame) && holds_too_much() && !lacks_bytes(); }

  // A new message that has come at once, all of it. may_place() before; then the receiver is asked where it goes, and then place()
  // places it, unless the connection has ended in that call. True: the receiver must be told that it is placed.
  bool may_place(const Frame& frame, const MessageHeader& header) const noexcept {
    const Class& its = classes_[index(frame)];
    return frame.length == header.length && frame.traffic == header.traffic && frame.number == its.headers + 1 &&
           its.begun.empty();
  }
  bool place(const Frame& frame, const MessageHeader& header, const MessageReceiver::Placement& placement,
             const std::byte* bytes);

  // The message of this frame, whose header has come, if these bytes of it are missing; null if they came before. Asks the
  // receiver where the message goes, unless it was begun before. Throws kProtocol if that cannot be.
  Incoming* begin(const Frame& frame, const MessageHeader& header);
  // The same for a chunk.
  Incoming* find(const Frame& frame);
  // These bytes of the message have come: false if they came over another connection meanwhile.
  void bytes_came(const Frame& frame, Incoming& message) noexcept;

  // The receiver takes the destination for this header back. False if no such message is being placed.
  bool revoke(const MessageHeader& header) noexcept;
  void ask_again() noexcept;  // offers held messages again; called soon after release()
  void forget() noexcept;

 private:
  using Action = Incoming::Action;
  using Messages = std::list<Incoming>;
  struct Held {
    Incoming* message;  // null: it has arrived
    MessageHeader header;
    std::vector<std::byte> bytes;
  };
  struct Class {
    std::uint64_t headers = 0;
    std::uint64_t whole = 0;
    Messages begun;  // by number
  };
  bool is_new(const Frame& frame) const noexcept { return frame.number > headers(index(frame)); }
  bool lacks_bytes() const noexcept;
  static std::size_t index(const Frame& frame) noexcept { return static_cast<std::size_t>(frame.traffic); }
  Incoming* if_missing(const Frame& frame, Incoming& message) const;
  void hold(const MessageHeader& header, const std::byte* bytes);  // a whole message
  void finish(Class& its, Incoming& message) noexcept;
  void place_later(Held& held, const MessageReceiver::Placement& placement) noexcept;

  Shared& shared_;
  int rank_;
  Readers& readers_;
  std::array<Class, kClasses> classes_;
  Messages spare_;
  std::list<Held> held_;  // oldest first
  std::size_t held_bytes_ = 0;
};

inline bool Inbound::place(const Frame& frame, const MessageHeader& header, const MessageReceiver::Placement& placement,
                           const std::byte* bytes) {
  if (placement.action == Action::kHold) {
    hold(header, bytes);
  } else if (placement.action == Action::kInto) {
    AIACC_INVARIANT(placement.into.bytes == header.length, "a place has the length of what it is for");
    if (header.length > 0) std::memcpy(placement.into.data, bytes, header.length);
  }
  Class& its = classes_[index(frame)];
  its.headers = its.whole = frame.number;
  return placement.action == Action::kInto;
}

}  // namespace aiacc::tcp

// SimChannel: messages of one traffic class from one rank to another, in order. The fabric owns it, so that a message
// that has departed arrives even if its sender is gone.
//
// A message is `sending` while its bytes are still the sender's; it departs when the sender's link has carried it, and
// only then are its bytes copied and its sender told, so that a sender that modifies them too early is detected. It is
// `flying` until it arrives. Now and then (by the seed) the payload reaches its place in two halves with time in
// between, as on a wire.
#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include "base/sim/world.h"
#include "transports/message.h"

namespace aiacc::sim {

class SimFabric;

class SimChannel;

struct SimMessage : SendCompletion::Message {
  MessageHeader header;
  int from = 0;
  int to = 0;
  std::vector<Buffer> pieces;              // while sending
  std::vector<std::byte> payload;          // afterwards
  bool elided = false;                     // a piece had no bytes: byte-free simulation
  SimChannel* sending = nullptr;           // while sending: where,
  std::list<SimMessage>::iterator self{};  // and its place there
  Instant departs{};
  Instant arrives{};
};
using SimMessages = std::list<SimMessage>;  // messages move between lists by splicing and are recycled

class SimChannel {
 public:
  SimChannel(SimFabric& fabric, int from, int to) noexcept : fabric_(fabric), from_(from), to_(to) {}

  int from() const noexcept { return from_; }
  int to() const noexcept { return to_; }

  void send(SimMessages& one);          // takes its only message, which departs at its `departs`
  void take_unsent(SimMessages& into);  // what has not departed
  void take_unsent(SimMessage& message, SimMessages& into);
  bool sending() const noexcept { return !sending_.empty(); }
  void drop_flying() noexcept;  // the receiver counts the sender as lost
  // The receiver revoked its place for this header: the second half is dropped. False if no such message is being placed.
  bool revoke(const MessageHeader& header) noexcept;
  void resume() noexcept;  // a cut link healed

 private:
  struct Departure final : Event {
    explicit Departure(SimChannel& channel) noexcept : Event(EventKind::kDeparture), owner(channel) {}
    void happen() noexcept override { owner.depart(); }
    SimChannel& owner;
  };
  struct Arrival final : Event {
    explicit Arrival(SimChannel& channel) noexcept : Event(EventKind::kArrival), owner(channel) {}
    void happen() noexcept override { owner.arrive(); }
    SimChannel& owner;
  };
  void depart() noexcept;
  void arrive() noexcept;
  void place_rest() noexcept;
  void schedule_departure() noexcept;
  void schedule_arrival() noexcept;

  SimFabric& fabric_;
  int from_;
  int to_;
  SimMessages sending_;
  SimMessages flying_;
  SimMessages placing_;  // at most one: its second half is outstanding
  Buffer place_;
  Departure departure_{*this};
  Arrival arrival_{*this};
};

}  // namespace aiacc::sim

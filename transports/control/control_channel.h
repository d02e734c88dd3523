// transports/control: what the libraries of two ranks say to each other about groups and operations: aborts, mismatches,
// straggler diagnosis, leaving. Each is a client of the ControlChannel with messages of its own
// (base/wire/control_messages.h). Not here: matching (transports/mailbox.h), and what ranks of one host say through shared
// memory (runtime/group/group_board.h).
//
// ControlChannel: typed messages in the most urgent class. A client registers a function for each type that it receives;
// malformed messages and unregistered types are dropped.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <span>
#include <utility>

#include "base/view.h"
#include "base/wire/codec.h"
#include "base/wire/control_messages.h"
#include "transports/message.h"
#include "transports/peers.h"
#include "transports/wire_id.h"

namespace aiacc {

class ControlChannel final {
 public:
  // The group, and the operation if the message is about one, as the sender identifies it. For a point-to-point message the
  // receiver's id of the same operation has the sender as its peer.
  struct Subject {
    std::uint64_t group = 0;
    WireId operation{0};
  };

  ControlChannel(Loop& loop, MessagePort& port, ViewPtr world, int rank, Peers& peers) noexcept
      : loop_(loop), port_(port), world_(std::move(world)), rank_(rank), peers_(peers), sent_(loop) {}

  // Registers `receive(from, about, message)`; `from` is the sender's rank in the world.
  template <wire::Message T, class Receive>
  void on(Receive receive) {
    receivers_[T::kType] = [receive = std::move(receive)](int from, const Subject& about, wire::Reader& reader) {
      T message;
      reader.get(message);
      reader.expect_end();
      receive(from, about, message);
    };
  }
  // Sends to a rank of the world; does nothing if that rank is lost.
  template <wire::Message T>
  void send(int to, const Subject& about, const T& message) noexcept {
    if (peers_[to].lost) return;
    wire::Bytes bytes;
    wire::Writer writer(bytes);
    writer.put(T::kType);
    writer.put(message);
    post(to, about, std::move(bytes));
  }
  // Returns when the kernel has accepted everything, or after a second; for a rank that will not drive the loop afterwards.
  Task<void> flush(Stop& stop);
  bool flushed() const noexcept { return outgoing_.empty(); }

  // The port's receiver forwards messages of kind kControl here.
  MessageReceiver::Placement on_header(int from, const MessageHeader& header) noexcept;
  void on_placed(int from, const MessageHeader& header) noexcept;
  void peer_lost(int rank) noexcept;

 private:
  struct Outgoing final : SendCompletion {
    void sent(std::exception_ptr) noexcept override { channel->sent(self); }
    ControlChannel* channel = nullptr;
    std::list<Outgoing>::iterator self;
    wire::Bytes bytes;
  };
  struct Incoming {  // its payload is arriving
    int from;
    MessageHeader header;
    wire::Bytes bytes;
  };

  void post(int to, const Subject& about, wire::Bytes bytes) noexcept;
  void sent(std::list<Outgoing>::iterator message) noexcept;

  Loop& loop_;
  MessagePort& port_;
  ViewPtr world_;
  int rank_;
  Peers& peers_;
  std::map<std::uint16_t, std::function<void(int, const Subject&, wire::Reader&)>> receivers_;
  std::list<Incoming> incoming_;
  std::list<Outgoing> outgoing_;
  Event sent_;
};

}  // namespace aiacc

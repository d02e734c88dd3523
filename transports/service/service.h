// transports/service: messages to a component of a peer that has posted no receive and may be computing. Here: the
// subscription and the messages (service.h), their way between hosts and within one (services.h, host_streams.h), and
// the credit that bounds them. Not here: what components say to each other, and the thread that delivers (runtime).
//
// A component subscribes to a number (ServiceId) of a group, and from then on gets the messages that members of the
// group send to this number. Subscribing is local; all members subscribe with the same options and then pass a barrier of
// the group (or any collective that waits for all) before the first message. A message to a member without the
// subscription comes back as on_refused().
//
// Messages of one sender, receiver and service arrive in the order in which they were posted, once, until the peer is
// lost. Nobody asks the receiver for memory first, so credit bounds what it stores: for each service and sender, messages
// of at most ServiceOptions::credit bytes are on their way or in the receiver's hands. A message is in its hands until the
// ServiceMessage is destroyed.
//
// Credit is shared by all messages of a service in one direction. A component that holds a message until it has sent
// another one, as a server that answers, therefore subscribes to two numbers, of requests and of replies: with one, two
// ranks could each hold all that the other may send, and wait for ever.
//
// Everything here belongs to the thread that drives the loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/intrusive_list.h"
#include "base/task/loop.h"
#include "base/view.h"
#include "transports/message.h"
#include "transports/service/service_memory.h"

namespace aiacc {

class Service;
class Services;

// A number within a group; its members agree on it.
using ServiceId = std::uint32_t;

// The payload of a message, which the message owns, so that neither end lends memory to a connection. Host memory.
class ServiceBytes {
 public:
  ServiceBytes() = default;
  // Not initialized. In `memory`, which keeps blocks of such a size for the next messages, or else from malloc.
  ServiceBytes(std::size_t size, ServiceMemory& memory) : data_(memory.take(size)), size_(size) {}
  explicit ServiceBytes(std::size_t size) : data_(ServiceMemory::from_malloc(size)), size_(size) {}
  ServiceBytes(ServiceBytes&& other) noexcept : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  ServiceBytes& operator=(ServiceBytes&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  // In memory that `owner` keeps as it is, so that several messages may be sent from it. A rank that sends one to itself gets it so.
  static ServiceBytes shared(std::span<std::byte> bytes, std::shared_ptr<const void> owner) noexcept {
    ServiceBytes shared;
    shared.data_ = ServiceMemory::shared(bytes.data(), std::move(owner));
    shared.size_ = bytes.size();
    return shared;
  }
  static ServiceBytes copy_of(std::span<const std::byte> bytes) { return ServiceBytes(bytes.size()).filled(bytes); }
  static ServiceBytes copy_of(std::span<const std::byte> bytes, ServiceMemory& memory) {
    return ServiceBytes(bytes.size(), memory).filled(bytes);
  }
  std::byte* data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return size_; }
  std::span<std::byte> span() const noexcept { return {data_.get(), size_}; }

 private:
  ServiceBytes filled(std::span<const std::byte> bytes) && {
    if (!bytes.empty()) std::memcpy(data(), bytes.data(), bytes.size());
    return std::move(*this);
  }

  ServiceMemory::Block data_;
  std::size_t size_ = 0;
};

// A message that has arrived. Its sender gets the credit back when it is destroyed, which may be after on_message().
class ServiceMessage : private ListNode<ServiceMessage> {
 public:
  ServiceMessage(ServiceMessage&& other) noexcept;
  ServiceMessage& operator=(ServiceMessage&& other) noexcept;
  ~ServiceMessage() { release(); }

  int from() const noexcept { return from_; }            // rank in the group
  std::uint64_t word() const noexcept { return word_; }  // as its sender gave it
  std::span<std::byte> bytes() const noexcept { return bytes_.span(); }
  // The payload, for instance to send it back. The credit is still the message's.
  ServiceBytes take_bytes() noexcept { return std::exchange(bytes_, ServiceBytes()); }

 private:
  friend class Service;
  friend class IntrusiveList<ServiceMessage>;
  ServiceMessage(Service& service, int from, std::uint64_t word, ServiceBytes bytes, std::size_t cost) noexcept;
  void release() noexcept;

  Service* service_;  // null: released, or the subscription has ended
  int from_;
  std::uint64_t word_;
  std::size_t cost_;
  ServiceBytes bytes_;
};

// The component. It may post from inside these calls, and must not end its subscription there.
class ServiceHandler {
 public:
  virtual void on_message(ServiceMessage message) noexcept = 0;
  // A message of this rank was not delivered: `to` has no such subscription, or grants less credit.
  virtual void on_refused(int to, std::uint64_t word, const Error& why) noexcept = 0;
  // That rank can neither send nor receive any more. Told once for each rank, with `why` naming it as the group does.
  virtual void on_peer_lost(int rank, const Error& why) noexcept = 0;

 protected:
  ~ServiceHandler() = default;
};

struct ServiceOptions {
  // For each sender: bytes of messages that have not been released, each of which counts Service::kOverhead more.
  std::size_t credit = 256 << 10;
  // kLatency goes before the payloads of collectives, kBulk beside them.
  TrafficClass traffic = TrafficClass::kLatency;
};

// A subscription. It ends when it is destroyed, before its Services.
class Service {
 public:
  static constexpr std::size_t kOverhead = 64;
  static constexpr std::size_t kMinCredit = 4 << 10;

  // `rank` is this rank in `view`. Throws kInvalidState if the group has, or had, a subscription of this number here
  // (a late message of the earlier one would be taken for one of this), kInvalidArgument for less credit than kMinCredit, and
  // kOutOfMemory if the host's segment has no room for its streams.
  Service(Services& services, ViewPtr view, int rank, ServiceId id, ServiceHandler& handler,
          ServiceOptions options = {});
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  const View& view() const noexcept { return *view_; }
  int rank() const noexcept { return rank_; }
  ServiceId id() const noexcept { return id_; }
  // The longest payload: half of the credit, because the receiver returns credit only when half of it is free.
  std::size_t longest() const noexcept { return options_.credit / 2 - kOverhead; }

  // kNoCredit: nothing was sent, and `bytes` is unchanged; try again when messages were released, or use send().
  // kLost: the rank is lost, which on_peer_lost() reports or has reported.
  enum class Posted : std::uint8_t { kSent, kNoCredit, kLost };
  // To a rank of the group, this one included. Throws kInvalidArgument if the payload is longer than longest().
  Posted post(int to, std::uint64_t word, ServiceBytes& bytes);
  Posted post(int to, std::uint64_t word, std::span<const std::byte> bytes);

  // co_await service.send(to, word, bytes, stop): posts as soon as there is credit, after the sends that wait already.
  // Throws the loss of the rank.
  class Send final : public Leaf, private ListNode<Send> {
   public:
    Send(Service& service, int to, std::uint64_t word, ServiceBytes bytes, Stop& stop);

   private:
    friend class Service;
    friend class IntrusiveList<Send>;
    bool try_now() override;
    void begin() noexcept override;
    void cancel() noexcept override { ListNode<Send>::unlink(); }
    Service& service_;
    int to_;
    std::uint64_t word_;
    ServiceBytes bytes_;
  };
  Send send(int to, std::uint64_t word, ServiceBytes bytes, Stop& stop) {
    return Send(*this, to, word, std::move(bytes), stop);
  }

  // --- for Services, and for messages that are released ----------------------------------------------------------------
  int rank_of_world(int world_rank) const noexcept { return ranks_[static_cast<std::size_t>(world_rank)]; }
  MessageReceiver::Placement on_header(int from, const MessageHeader& header);
  void on_placed(int from, const MessageHeader& header) noexcept;
  void on_grant(int from, std::uint64_t limit) noexcept;
  void on_refused(int from, std::uint64_t number, std::uint64_t word, std::uint64_t bytes, const Error& why) noexcept;
  void on_peer_lost(int world_rank, const Error& why) noexcept;
  void end() noexcept;                                                    // nothing is sent or told any more
  void deliver_to_self(std::uint64_t word, ServiceBytes bytes) noexcept;  // a message of this rank to itself
  void released(int from, std::size_t cost) noexcept;

 private:
  friend class ServiceMessage;
  // A message whose payload is arriving.
  struct Incoming {
    std::uint64_t number;
    std::uint64_t word;
    ServiceBytes bytes;
    std::size_t placed = 0;
    bool came = false;  // a part of it was placed, possibly of length 0
    bool complete() const noexcept { return came && placed == bytes.size(); }
  };
  // Between this rank and another one of the group.
  struct PeerState {
    std::uint64_t sent = 0;      // bytes of credit used, in total
    std::uint64_t may_send = 0;  // the peer's limit for `sent`
    std::uint64_t posted = 0;    // number of messages
    std::uint64_t refused = 0;   // number of the last message that was refused
    IntrusiveList<Send> waiting;
    std::uint64_t held = 0;         // bytes of credit that the peer's messages use now
    std::uint64_t freed = 0;        // bytes of credit that were released, in total
    std::uint64_t granted = 0;      // the part of `freed` that the peer knows of
    std::deque<Incoming> incoming;  // in the order in which they are delivered
    bool lost = false;
  };

  Error loss(int rank) const;
  PeerState& peer(int rank) noexcept { return peers_[static_cast<std::size_t>(rank)]; }
  std::uint64_t limit(PeerState& peer) const noexcept { return peer.freed + options_.credit; }
  int world_rank(int rank) const noexcept { return static_cast<int>(view_->member(rank).id); }
  void check(std::size_t bytes) const;
  bool has_credit(const PeerState& peer, std::size_t bytes) const noexcept {
    return peer.sent + bytes + kOverhead <= peer.may_send;
  }
  void transmit(int to, std::uint64_t word, ServiceBytes bytes);
  void send_waiting(int to) noexcept;
  void deliver(int from) noexcept;

  Services& services_;
  ViewPtr view_;
  int rank_;
  ServiceId id_;
  ServiceHandler& handler_;
  ServiceOptions options_;
  std::vector<int> ranks_;                  // by rank in the world: rank in the group, or -1
  std::vector<PeerState> peers_;            // by rank in the group
  IntrusiveList<ServiceMessage> messages_;  // in the handler's hands
};

}  // namespace aiacc

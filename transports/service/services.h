// Services: all subscriptions of a rank, and the way of their messages: over the port to other hosts, through a stream in
// shared memory to a local peer, and round the loop to this rank itself. Services carries whole payloads and knows peers;
// order, credit and delivery are those of each Service.
//
// On the wire a message has a header of kind kService, its payload in chunks, and `flags`:
//   0               a message: `step` is the service, `sequence` its number among those of its sender to this receiver
//   kGrant          nothing but the credit_limit of `step`
//   kRefusal        the message was not delivered; the payload is a wire::ServiceRefused
// Each of these headers carries in `credit_limit` what its receiver may have sent in this service, ever.
#pragma once

#include <exception>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/wire/control_messages.h"
#include "transports/message.h"
#include "transports/service/host_streams.h"
#include "transports/service/service.h"

namespace aiacc {

class Services final : private MessageReceiver {
 public:
  static constexpr std::uint16_t kGrant = 1;
  static constexpr std::uint16_t kRefusal = 2;
  // Longer than training steps, between which the memory is to stay.
  static constexpr Duration kTrimPeriod = std::chrono::seconds(10);

  class Owner {
   public:
    // The first subscription was made, or the last one ended: the rank must be driven meanwhile, also while its program
    // computes. May throw on true.
    virtual void services_active(bool active) = 0;

   protected:
    ~Owner() = default;
  };

  // `rank` is this rank in `world`, whose numbers the port uses. `port` is null if all ranks share this host, `domain` if
  // this rank is alone on its host. All outlive this object.
  Services(Loop& loop, ViewPtr world, int rank, MessagePort* port, HostDomain* domain, Owner& owner);
  ~Services();

  // Before the loop ends: ends every subscription here and returns when no coroutine of this object runs.
  Task<void> close();

  // For messages of kind kService that arrive at the port, and for peers that are lost.
  MessageReceiver& receiver() noexcept { return *this; }
  // May be told twice.
  void peer_lost(int world_rank, const std::exception_ptr& why) noexcept;
  // Ranks of the world on other hosts that this one has sent messages to, or had some from.
  const std::set<int>& partners() const noexcept { return partners_; }

  // --- for Service -----------------------------------------------------------------------------------------------------
  Loop& loop() const noexcept { return loop_; }
  // Of this rank's messages. It keeps blocks while there are subscriptions, and trims itself every kTrimPeriod while it has any.
  ServiceMemory& memory() noexcept { return memory_; }
  const View& world() const noexcept { return *world_; }
  void add(Service& service);
  void remove(Service& service) noexcept;
  // The header of a message of this service to that rank of the world.
  MessageHeader header(const Service& service, TrafficClass traffic, std::uint64_t credit_limit) noexcept;
  void transmit(int to, const MessageHeader& header, ServiceBytes bytes) noexcept;
  void send_to_self(Service& service, std::uint64_t word, ServiceBytes bytes);
  // Tells the sender that its message is not delivered.
  void refuse(int from, const MessageHeader& header, wire::ServiceRefused::Reason reason,
              std::uint64_t credit) noexcept;
  // The payload that is being placed for a subscription that ends stays here until it is placed.
  void keep(int from, const Service& service, std::uint64_t number, ServiceBytes bytes, std::size_t placed);
  bool lost(int world_rank) const noexcept { return lost_.contains(world_rank); }
  const Error& loss(int world_rank) const { return lost_.at(world_rank); }

 private:
  using Key = std::pair<std::uint64_t, ServiceId>;  // group and number

  // Its chunks are in the hands of a port or stream; destroyed with the last of them.
  struct Outgoing final : SendCompletion {
    Outgoing(Services& its, ServiceBytes its_bytes) noexcept : owner(its), bytes(std::move(its_bytes)) {}
    void sent(std::exception_ptr) noexcept override { finished(); }
    void finished() noexcept {
      if (--posts == 0) owner.outgoing_.erase(self);
    }
    Services& owner;
    ServiceBytes bytes;
    int posts = 1;  // and one while chunks are being posted
    std::list<Outgoing>::iterator self;
  };
  // What is being placed and belongs to no subscription: the rest of a message to one that has ended, or a refusal.
  struct Kept {
    int from;
    Key key;
    std::uint16_t flags;
    std::uint64_t number;
    ServiceBytes bytes;
    std::size_t placed = 0;
  };
  // What a subscription is told soon: a message of this rank to itself, or that its message to `to` cannot be delivered.
  struct Deferred {
    Key key;
    std::uint64_t word;
    ServiceBytes bytes;
    int to = -1;  // rank in the world; -1: this rank
    std::uint64_t number = 0;
  };
  struct DeferredJob final : Job {
    explicit DeferredJob(Services& its) noexcept : owner(its) {}
    void run() noexcept override { owner.run_deferred(); }
    Services& owner;
  };
  struct TrimTimer final : Timer {
    explicit TrimTimer(Services& its) noexcept : owner(its) {}
    void expired() noexcept override { owner.trim(); }
    Services& owner;
  };
  struct LostStream final : HostStreams::Observer {
    explicit LostStream(Services& its) noexcept : owner(its) {}
    void stream_broken(int local_rank, const Error& why) noexcept override;
    Services& owner;
  };

  Placement on_header(int from, const MessageHeader& header) noexcept override;
  void on_placed(int from, const MessageHeader& header) noexcept override;
  void on_peer_lost(int rank, std::exception_ptr error) noexcept override { peer_lost(rank, error); }

  bool is_valid(int from, const MessageHeader& header) const noexcept;
  void trim() noexcept;
  void trim_later() noexcept;
  Service* find(const Key& key) noexcept;
  Kept* find_kept(int from, const MessageHeader& header) noexcept;
  int local_rank(int world_rank) const noexcept;  // -1: on another host
  void run_deferred() noexcept;
  void refused(int from, const MessageHeader& header, std::span<const std::byte> bytes) noexcept;

  Loop& loop_;
  ViewPtr world_;
  int rank_;
  MessagePort* port_;
  HostDomain* domain_;
  Owner& owner_;
  ServiceMemory memory_;
  TrimTimer trim_timer_{*this};
  std::map<Key, Service*> services_;  // null: the subscription has ended
  int active_ = 0;                    // subscriptions
  std::map<int, Error> lost_;         // by rank in the world
  std::set<int> partners_;
  std::list<Outgoing> outgoing_;
  std::list<Kept> kept_;
  std::deque<Deferred> deferred_;
  DeferredJob deferred_job_{*this};
  LostStream lost_stream_{*this};
  std::optional<HostStreams> streams_;  // from the first subscription on
  bool closed_ = false;
};

}  // namespace aiacc

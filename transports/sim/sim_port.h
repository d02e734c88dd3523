// SimPort: one rank's port to the simulated network. Its callbacks run as events of the rank's node, so a killed rank
// gets none and a frozen one gets them when it thaws.
#pragma once

#include <array>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/sim/sim_loop.h"
#include "transports/message.h"
#include "transports/sim/sim_fabric.h"

namespace aiacc::sim {

class SimPort final : public MessagePort, private Job {
 public:
  SimPort(SimFabric& fabric, int rank, SimLoop& loop);
  ~SimPort();

  void set_receiver(MessageReceiver& receiver) noexcept override { receiver_ = &receiver; }
  void post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
            SendCompletion& completion) noexcept override;
  void release(int from_rank) noexcept override;
  void withdraw(SendCompletion& completion) noexcept override;
  void revoke(int from_rank, const MessageHeader& header) noexcept override;
  void lose(int rank, std::exception_ptr why) noexcept override;
  std::optional<BrokenPath> broken_path(int rank) const override;
  Task<void> leave(Duration limit, Stop& stop) override;
  void close() noexcept override;

 private:
  friend class SimFabric;
  friend class SimChannel;

  struct Peer final : Event {  // the event: this rank learns that the peer is lost
    Peer(SimPort& port, int peer_rank) noexcept : Event(EventKind::kLoss), owner(port), rank(peer_rank) {}
    void happen() noexcept override { owner.lose(*this); }
    SimPort& owner;
    int rank;
    bool lost = false;
    std::exception_ptr reason;
    SimMessages held;
    std::array<SimChannel*, kTrafficClasses> out{};
    std::array<SimChannel*, kTrafficClasses> in{};
  };

  // A callback that is made from the loop, because it must not be made from inside a call of the port.
  struct Notification {
    enum class What : std::uint8_t { kSent, kRelease, kRevoked, kBroken } what;
    SendCompletion* completion;  // of kSent
    std::exception_ptr error;    // of kSent
    int from;
    MessageHeader header;  // of kRevoked
  };

  Peer& peer(int rank);
  bool sending() const noexcept;
  // Schedules the notification that `peer_rank` is lost, unless it is known or scheduled already.
  void expect_loss(int peer_rank, Instant when, const std::string& why) noexcept;
  void lose(Peer& peer) noexcept;
  // Asks the receiver where the only message of `one` goes, and holds or drops it. True: it goes to `place`.
  bool ask(SimMessages& one, Buffer& place) noexcept;
  void ask_held_again(Peer& peer) noexcept;
  void path_broken(int rank) noexcept { notify_later({Notification::What::kBroken, nullptr, nullptr, rank, {}}); }
  void notify_later(Notification notification) noexcept;
  void run() noexcept override;

  SimFabric& fabric_;
  int rank_;
  SimLoop& loop_;
  MessageReceiver* receiver_ = nullptr;
  bool closed_ = false;
  std::array<Instant, kTrafficClasses> out_free_{};  // when the outgoing link is free again, for each class
  std::array<Instant, kTrafficClasses> in_free_{};
  std::map<int, Peer> peers_;  // the ranks that this rank has communicated with

  std::vector<Notification> notifications_;
};

}  // namespace aiacc::sim

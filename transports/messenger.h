// Messenger: everything that crosses a rank's port to other hosts. It is the port's receiver, owns the components below, and
// hands each message to one of them by its kind:
//
//   eager, RTS, CTS, data   Mailbox              matching: posted receives, unexpected messages, credit
//   control                 ControlChannel       and its clients: aborts, mismatches, straggler diagnosis, leaving
//   service                 transports/service   components that have posted no receive
//
// A lost peer is told to each of them once, here. A context has one messenger if its job has several hosts.
#pragma once

#include <set>

#include "transports/control/aborts.h"
#include "transports/control/leaving.h"
#include "transports/control/mismatches.h"
#include "transports/control/stragglers.h"
#include "transports/mailbox.h"

namespace aiacc {

class Messenger final : private MessageReceiver, private MatchObserver {
 public:
  class Observer : public Aborts::Observer, public Stragglers::Observer {
   public:
    // MessageReceiver::on_path_broken()
    virtual void path_broken(int rank) noexcept = 0;

   protected:
    ~Observer() = default;
  };

  // `rank` is this rank in `world`; the port's ranks are those of `world`. `services`, if not null, receives messages of
  // kind kService, and losses.
  Messenger(Loop& loop, MessagePort& port, ViewPtr world, int rank, MessageReceiver* services = nullptr);
  ~Messenger();  // closes the port; every Exchange must be gone

  void set_observer(Observer* observer) noexcept;

  Mailbox& mailbox() noexcept { return mailbox_; }
  Aborts& aborts() noexcept { return aborts_; }
  Stragglers& stragglers() noexcept { return stragglers_; }

  // Returns when the kernel has accepted all control messages, or after a second.
  Task<void> flush(Stop& stop) { return channel_.flush(stop); }
  bool flushed() const noexcept { return channel_.flushed(); }
  // `partners`: ranks that this one exchanged service messages with, which do not pass through here on their way out.
  Task<void> leave(const std::set<int>& partners, LeaveDeadline& deadline, Stop& stop) {
    for (const int rank : partners) peers_[rank].awaited = true;
    return leaving_.leave(deadline, stop);
  }
  // See Mailbox: members that wait for another call of this rank are told.
  void say_last(std::uint64_t group, LastCalls last) noexcept;
  void forget(std::uint64_t group, std::uint64_t last = ~std::uint64_t{0}) noexcept;
  bool lost(int rank) const noexcept { return peers_.lost(rank); }

 private:
  Placement on_header(int from, const MessageHeader& header) noexcept override;
  void on_placed(int from, const MessageHeader& header) noexcept override;
  void on_peer_lost(int rank, std::exception_ptr error) noexcept override;
  void on_path_broken(int rank) noexcept override {
    if (observer_ != nullptr) observer_->path_broken(rank);
  }

  void joined(MatchGroup& group) noexcept override { aborts_.joined(group); }
  void calls_differ(MatchGroup& group, int from, const MessageHeader& header, const CallNote& mine) noexcept override {
    mismatches_.calls_differ(group, from, header, mine);
  }
  void lengths_differ(MatchGroup& group, int from, const std::string& sentence) noexcept override {
    mismatches_.lengths_differ(group, from, sentence);
  }

  bool is_valid(int from, const MessageHeader& header) const noexcept;

  MessagePort& port_;
  ViewPtr world_;
  MessageReceiver* services_;
  Observer* observer_ = nullptr;
  Peers peers_;
  ControlChannel channel_;
  Mailbox mailbox_;
  Aborts aborts_;
  Mismatches mismatches_;
  Stragglers stragglers_;
  Leaving leaving_;
};

}  // namespace aiacc

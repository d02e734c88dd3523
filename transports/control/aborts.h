// Aborts: how a group that spans hosts ends. The error runs one way: what is found between hosts (a lost peer, a mismatch,
// another member's notice) ends the group's transfers and goes up to the observer, once; what this rank's group found itself
// comes down by abort(), and does not go up again. Either way the members on other hosts are notified.
//
// An abort is relayed once by every member to its neighbours in a binomial graph, so it reaches all in ⌈log₂ n⌉ hops and
// survives dead relays (Angskun, Bosilca, Dongarra, ISPA 2007). The first error of a group is kept.
#pragma once

#include <exception>
#include <map>

#include "transports/control/control_channel.h"
#include "transports/mailbox.h"

namespace aiacc {

class Aborts final {
 public:
  class Observer {
   public:
    // The group ended between hosts: its transfers have failed, and whatever else its operations wait for is to be
    // stopped. Once for a group, and not for one that ended by abort().
    virtual void group_aborted(std::uint64_t group, const std::exception_ptr& error) noexcept = 0;

   protected:
    ~Observer() = default;
  };

  Aborts(ControlChannel& channel, Mailbox& mailbox, Peers& peers);
  void set_observer(Observer* observer) noexcept { observer_ = observer; }

  // This rank, `rank` of `view`, ends the group on all members.
  void abort(const ViewPtr& view, int rank, const std::exception_ptr& error);
  // For what is found between hosts. Nothing if the group has ended.
  void end(MatchGroup& group, const wire::GroupAborted& notice, std::exception_ptr error) noexcept;
  void peer_lost(int rank, const std::exception_ptr& error) noexcept;
  // This rank has joined the group, which may have ended, or lost a member, before.
  void joined(MatchGroup& group) noexcept;
  // Repeats the notice of a group that has ended to a rank of the world, which may be no neighbour.
  void tell(const MatchGroup& group, int to) noexcept;
  void forget(std::uint64_t group) noexcept { notices_.erase(group); }

 private:
  struct Notice {
    wire::GroupAborted message;
    bool relayed = false;
  };
  void came(int from, const ControlChannel::Subject& about, const wire::GroupAborted& notice);
  void stop(MatchGroup& group, const wire::GroupAborted& notice, std::exception_ptr error) noexcept;
  void end_by_loss(MatchGroup& group, int rank, const Error& cause) noexcept;
  void relay(const MatchGroup& group) noexcept;

  ControlChannel& channel_;
  Mailbox& mailbox_;
  Peers& peers_;
  Observer* observer_ = nullptr;
  std::map<std::uint64_t, Notice> notices_;  // of groups that have ended
};

}  // namespace aiacc

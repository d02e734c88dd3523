// Aborts: how a group that spans hosts ends. An error takes one direction. What is found between hosts (a lost peer, a
// mismatch, another member's notice) ends the group's transfers and is reported to the observer, once. What this rank's group
// has found itself arrives by abort() and is not reported back. In both cases the members on other hosts are notified.
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
  // Ends the group because of something found between hosts. Does nothing if the group has ended.
  void end(MatchGroup& group, const wire::GroupAborted& notice, std::exception_ptr error) noexcept;
  void peer_lost(int rank, const std::exception_ptr& error) noexcept;
  // Call when this rank has joined the group: it may have ended, or lost a member, before that.
  void joined(MatchGroup& group) noexcept;
  // Sends the notice of a group that has ended to a rank of the world, also if that is no neighbour in the binomial graph.
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

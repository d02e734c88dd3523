// Aborts: how a group that spans hosts ends. An error takes one direction. What is found between hosts (a lost peer, a
// mismatch, another member's notice) ends the group's transfers and is reported to the observer, once. What this rank's group
// has found itself arrives by abort() and is not reported back. In both cases the members on other hosts are notified.
//
// An abort is relayed once by every member to its neighbours in a binomial graph, so it reaches all in ⌈log₂ n⌉ hops and
// survives dead relays (Angskun, Bosilca, Dongarra, ISPA 2007). A member that has freed the group relays it too, and for one that
// is known to have left the job its own neighbours are told. The first error of a group is kept.
#pragma once

#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <vector>

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
  // This rank leaves the group. For a while it goes on to relay the notice of its end, and to tell it.
  void forget(std::uint64_t group) noexcept;
  // Tells a member of a group that this rank has left of the group's end; false if it knows of none.
  bool tell_of_left(std::uint64_t group, int to) noexcept;

 private:
  struct Notice {
    wire::GroupAborted message;
    bool relayed = false;
  };
  void came(int from, const ControlChannel::Subject& about, const wire::GroupAborted& notice);
  void stop(MatchGroup& group, const wire::GroupAborted& notice, std::exception_ptr error) noexcept;
  void end_by_loss(MatchGroup& group, int rank, const Error& cause) noexcept;
  void relay(const MatchGroup& group) noexcept;
  std::set<int> neighbours(const MatchGroup& group) const;
  void keep_left(const MatchGroup& group);
  void relay_of_left(int from, std::uint64_t group, const wire::GroupAborted& notice);

  ControlChannel& channel_;
  Mailbox& mailbox_;
  Peers& peers_;
  Observer* observer_ = nullptr;
  std::map<std::uint64_t, Notice> notices_;  // of groups that have ended
  // Groups that this rank left last, Mailbox::kForgotten of them, among them those that ended.
  struct Left {
    std::vector<int> neighbours;  // ranks of the world
    std::optional<wire::GroupAborted> notice;
  };
  std::map<std::uint64_t, Left> left_;
  std::deque<std::uint64_t> left_in_order_;
};

}  // namespace aiacc

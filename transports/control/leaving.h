// Leaving: how a rank leaves in order. All ranks have passed a final barrier (runtime/real_context.cc), but others may still
// wait for its last messages and acknowledgements, and a connection that ends without notice looks like a lost rank.
//
// The rank therefore sends Leaving, as its last message, to every rank that it has exchanged messages with, service messages
// included, and leaves when all of them have sent it too. From then on it needs nothing more, and a peer that disappears counts
// as one that has left. If the very last messages are lost, nothing is missing.
//
// It says Leaving again, every five seconds, to those for which it waits. A peer that has heard it may have left while the path between
// them was broken, with its own Leaving in a socket; nothing that was sent on that path would then show that it is gone.
//
// It does not wait for a rank that it has sent nothing but control messages and heard nothing from: no operation waits for a
// question about a late one, or for the notice that a group is over, so that rank may have left before they arrived. Nobody would
// report it as lost, because its process lives on where it joins the job again.
#pragma once

#include "base/task/leave_deadline.h"
#include "transports/control/control_channel.h"
#include "transports/mailbox.h"

namespace aiacc {

class Leaving final {
 public:
  // `world` is the view's id.
  Leaving(Loop& loop, MessagePort& port, ControlChannel& channel, Mailbox& mailbox, Peers& peers, std::uint64_t world);

  // Returns when every member that this rank waits for also leaves, so that nobody needs an answer from this
  // rank, or is lost (which ends no group from now on). If the world was aborted, members may take long to leave: then it
  // returns at the deadline, which starts here, or once they have received everything that this rank had to send. The
  // deadline has always been started when this returns, and the time for the connections has passed or is not needed. The
  // world must have no operation any more.
  Task<void> leave(LeaveDeadline& deadline, Stop& stop);

 private:
  struct Reminder final : Timer {
    explicit Reminder(Leaving& of) : leaving(of) {}
    void expired() noexcept override { leaving.remind(); }
    Leaving& leaving;
  };

  Task<void> say_leaving(LeaveDeadline& deadline, Stop& stop);
  void remind() noexcept;
  void tell(int rank) noexcept;
  void peer_leaves(int rank) noexcept;
  bool anybody_stays() noexcept;

  Loop& loop_;
  MessagePort& port_;
  ControlChannel& channel_;
  Mailbox& mailbox_;
  Peers& peers_;
  std::uint64_t world_;
  Reminder reminder_{*this};  // armed while this rank waits for others
};

}  // namespace aiacc

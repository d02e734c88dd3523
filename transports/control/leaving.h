// Leaving: how a rank leaves. It has passed a final barrier with all others (runtime/real_context.cc), but they may still
// wait for its last messages and acknowledgements, and a connection that ends looks like a death.
//
// So it sends Leaving, as its last message, to every rank that it has exchanged messages with, and leaves when all of those
// have sent it too. A rank that has sent it needs nothing more; from then on it takes a peer that disappears as one that left
// earlier. The very last messages may be lost without harm.
#pragma once

#include "base/task/leave_deadline.h"
#include "transports/control/control_channel.h"
#include "transports/mailbox.h"

namespace aiacc {

class Leaving final {
 public:
  // `world` is the view's id.
  Leaving(Loop& loop, MessagePort& port, ControlChannel& channel, Mailbox& mailbox, Peers& peers, std::uint64_t world);

  // Returns when every member that this rank exchanged messages with also leaves, so that nobody needs an answer from this
  // rank, or is lost (which ends no group from now on). If the world was aborted, members may take long to leave: then it
  // returns at the deadline, which starts here, or once they have received everything that this rank had to send. The
  // deadline has always been started when this returns, and the time for the connections has passed or is not needed. The
  // world must have no operation any more.
  Task<void> leave(LeaveDeadline& deadline, Stop& stop);

 private:
  Task<void> say_leaving(LeaveDeadline& deadline, Stop& stop);
  void tell(int rank) noexcept;
  void peer_leaves(int rank) noexcept;
  bool anybody_stays() noexcept;

  Loop& loop_;
  MessagePort& port_;
  ControlChannel& channel_;
  Mailbox& mailbox_;
  Peers& peers_;
  std::uint64_t world_;
};

}  // namespace aiacc

// WaitingSmall: an asynchronous small collective that cannot end at once: a record in its group's queue of such calls, on one host
// (collectives/intra/small_queue.h) or among hosts with one rank each (runtime/group/short_queue.h).
#pragma once

#include "collectives/plain_queue.h"
#include "runtime/group/waiting_call.h"

namespace aiacc {

class WaitingSmall final : public WaitingCall, public PlainQueue::Item {
 public:
  // For a call that the group's queue admits (PlainQueue::prepare_to_post).
  WaitingSmall(Group& group, const PlainCall& call, const Buffer& send, const Buffer& recv);

  PlainCall plain() const noexcept override { return Item::plain(); }
  bool receives() const noexcept override { return false; }
  bool sends() const noexcept override;
  Task<void> go_on(Operation& operation) override;

 private:
  void post() noexcept override;
  bool withdraw() noexcept override;
  Buffer memory() const noexcept override { return {}; }  // the queue's until it ends, and no operation's
  std::uint32_t recorded() const noexcept override { return note(); }
  void set_recorded(std::uint32_t low) noexcept override { set_note(low); }
};

}  // namespace aiacc

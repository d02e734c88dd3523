// WaitingReceive: an asynchronous recv from a rank of this host whose message is not there yet: a record in the receiver's queue
// (IntraMessages::Posted). Its message is copied when it is found.
#pragma once

#include "runtime/group/waiting_call.h"

namespace aiacc {

class WaitingReceive final : public WaitingCall, public IntraMessages::Posted {
 public:
  // For a call that the messages of `group` can take (IntraMessages::prepare_to_post), from the member that it names.
  WaitingReceive(Group& group, int member, const PlainCall& call, const Buffer& recv) noexcept
      : WaitingCall(group), Posted(member, call, recv) {}

  PlainCall plain() const noexcept override;
  bool receives() const noexcept override { return true; }
  bool sends() const noexcept override { return false; }
  Task<void> go_on(Operation& operation) override;

 private:
  void post() noexcept override;
  bool withdraw() noexcept override;
  Buffer memory() const noexcept override { return into(); }
  std::uint32_t recorded() const noexcept override { return note(); }
  void set_recorded(std::uint32_t low) noexcept override { set_note(low); }
};

}  // namespace aiacc

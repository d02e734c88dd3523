#include "runtime/group/waiting_small.h"

#include "runtime/group/group.h"

namespace aiacc {

static_assert(sizeof(void*) != 8 || sizeof(WaitingSmall) <= 128);

WaitingSmall::WaitingSmall(Group& group, const PlainCall& call, const Buffer& send, const Buffer& recv)
    : WaitingCall(group), Item(call, send, recv) {}

bool WaitingSmall::sends() const noexcept { return group().small_calls()->sends(); }

void WaitingSmall::post() noexcept { group().small_calls()->post(*this); }

bool WaitingSmall::withdraw() noexcept { return group().small_calls()->withdraw(*this); }

Task<void> WaitingSmall::go_on(Operation& operation) { return arrival(operation.stop); }

}  // namespace aiacc

#include "runtime/group/waiting_small.h"

#include "runtime/group/group.h"

namespace aiacc {

static_assert(sizeof(void*) != 8 || sizeof(WaitingSmall) <= 128);

WaitingSmall::WaitingSmall(Group& group, const PlainCall& call, const Buffer& send, const Buffer& recv)
    : WaitingCall(group), Item(call, send, recv) {}

bool WaitingSmall::sends() const noexcept { return group().small_calls()->sends(); }

void WaitingSmall::post() noexcept { group().small_calls()->post(*this); }

bool WaitingSmall::withdraw() noexcept { return group().small_calls()->withdraw(*this); }

// One that goes on (ShortQueue) ends by the group's Stop too, perhaps after its port has given its memory back: no sooner is it over.
Task<void> WaitingSmall::go_on(Operation& operation) {
  try {
    co_await arrival(operation.stop);
    co_return;
  } catch (...) {
    if (state() != State::kGoesOn) throw;
  }
  Stop none;
  co_await arrival(none);
}

}  // namespace aiacc

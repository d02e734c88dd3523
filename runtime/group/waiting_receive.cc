#include "runtime/group/waiting_receive.h"

#include "collectives/intra/intra_messages_now.h"
#include "runtime/group/group.h"

namespace aiacc {

static_assert(sizeof(void*) != 8 || sizeof(WaitingReceive) <= 128);

PlainCall WaitingReceive::plain() const noexcept { return Posted::plain(*group().post()); }

void WaitingReceive::post() noexcept { group().post()->post(*this, group().waiting_calls()); }

bool WaitingReceive::withdraw() noexcept {
  if (waits()) group().post()->withdraw(*this);
  return true;
}

Task<void> WaitingReceive::go_on(Operation& operation) { return arrival(operation.stop); }

}  // namespace aiacc

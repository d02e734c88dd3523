#include "runtime/alone.h"

#include <fmt/format.h>

#include <array>
#include <span>

namespace aiacc {

Task<void> run_alone(Operation& operation) {
  const Call& call = operation.call;
  Compute& compute = operation.team.compute;
  switch (call.kind) {
    case Collective::kAllreduce:
    case Collective::kReduce:
    case Collective::kReduceScatter: {
      const std::array destinations{operation.recv};
      const std::array operands{operation.send};
      co_await compute.reduce(destinations, operands, call.count, call.reduction, {true, true, 1});
      break;
    }
    case Collective::kAllgather:
      if (operation.send.data != operation.recv.data) co_await compute.copy(operation.recv, operation.send);
      break;
    case Collective::kBroadcast:
    case Collective::kBarrier: break;
    case Collective::kSend:
    case Collective::kRecv: AIACC_INVARIANT(false, "messages go through the loopback");
  }
}

// The oldest of the waiting that has this tag, unlinked.
Loopback::Waiting* Loopback::match(IntrusiveList<Waiting>& others, const Operation& operation) {
  Waiting* found = nullptr;
  others.for_each([&](Waiting& other) {
    if (found == nullptr && other.operation.call.tag == operation.call.tag) found = &other;
  });
  if (found != nullptr) found->unlink();
  return found;
}

Task<void> Loopback::run(Operation& operation) {
  const bool sending = operation.call.kind == Collective::kSend;
  if (Waiting* other = match(sending ? recvs_ : sends_, operation)) {
    const Operation& send = sending ? operation : other->operation;
    const Operation& recv = sending ? other->operation : operation;
    Event& met = other->met;
    other->matched = true;
    if (send.send.bytes != recv.recv.bytes) {
      const Error error(Code::kMismatch,
                        fmt::format("rank {} sends itself {} bytes with tag {} and expects {}: sizes must agree",
                                    operation.team.rank, send.send.bytes, operation.call.tag, recv.recv.bytes),
                        operation.team.rank);
      other->error = std::make_exception_ptr(error);
      met.set();
      throw error;
    }
    co_await operation.team.compute.copy(recv.recv, send.send);
    met.set();
    co_return;
  }
  Event met(operation.team.loop);
  Waiting self(operation, met);
  (sending ? sends_ : recvs_).push_back(self);
  try {
    co_await met.wait(operation.stop);
  } catch (...) {
    self.error = std::current_exception();
  }
  // Once matched, the other side is copying from or to our buffer: a stop has to wait for it.
  Stop none;
  if (self.matched) co_await met.wait(none);
  if (self.error) std::rethrow_exception(self.error);
}

}  // namespace aiacc

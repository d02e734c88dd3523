#include "collectives/inter/point_to_point.h"

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

Exchange exchange_of(Operation& op) {
  const WireId id(op.sequence | Exchange::kPairSequence, op.call.tag, op.call.root);
  return Exchange(*op.team.mailbox, op.team.view, op.team.rank, id, op.call.fingerprint(), CallNote(op.call.summary()));
}

}  // namespace

Task<void> send(Operation& op) {
  Exchange exchange = exchange_of(op);
  exchange.set_urgent(op.urgent);
  co_await exchange.send(op.call.root, op.call.tag, op.send, op.stop);
}

Task<void> recv(Operation& op) {
  Exchange exchange = exchange_of(op);
  exchange.set_urgent(op.urgent);
  co_await exchange.recv(op.call.root, op.call.tag, op.recv, op.stop);
}

}  // namespace aiacc::inter

#include "collectives/inter/point_to_point.h"

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {
namespace {

Exchange exchange_of(Operation& op) {
  const WireId id(op.sequence | Exchange::kPairSequence, op.call.tag, op.call.root);
  return Exchange(*op.team.mailbox, op.team.view, op.team.rank, id, op.call.fingerprint(), CallNote(op.call.summary()));
}

}  // namespace

Task<void> send(Operation& op, SendRecord* begun) {
  Exchange exchange = exchange_of(op);
  exchange.set_traffic(op.traffic);
  co_await exchange.send(op.call.root, op.call.tag, op.send, op.stop, begun);
}

Task<void> recv(Operation& op, ReceiveRecord* begun) {
  Exchange exchange = exchange_of(op);
  exchange.set_traffic(op.traffic);
  co_await exchange.recv(op.call.root, op.call.tag, op.recv, op.stop, begun);
}

}  // namespace aiacc::inter

#include "collectives/net/point_to_point.h"

#include "collectives/net/net_call.h"

namespace aiacc::net {
namespace {

Exchange exchange_of(Operation& op) {
  return Exchange(*op.team.mailbox, op.team.view, op.team.rank, op.sequence | Exchange::kPairSequence,
                  op.call.fingerprint(), CallNote(op.call.summary()));
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

}  // namespace aiacc::net

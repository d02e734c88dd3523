// Send and receive of one message between two members. call.root is the peer, call.tag the caller's tag.
//
//   α + Sβ
//
// op.sequence counts the calls between the two with this tag, with Exchange::kPairSequence set: members that take no part
// know nothing of it.
#pragma once

#include "collectives/operation.h"

namespace aiacc::net {

Task<void> send(Operation& op);
Task<void> recv(Operation& op);

}  // namespace aiacc::net

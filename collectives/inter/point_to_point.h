// Send and receive of one message between two members. call.root is the peer, call.tag the caller's tag.
//
//   α + Sβ
//
// op.sequence counts the calls between the two with this tag, with Exchange::kPairSequence set: the other members do
// not see these calls, so they have no number in the group's sequence.
#pragma once

#include "collectives/operation.h"

namespace aiacc::inter {

Task<void> send(Operation& op);
Task<void> recv(Operation& op);

}  // namespace aiacc::inter

// Send and receive of one message between two members. call.root is the peer, call.tag the caller's tag.
//
//   α + Sβ
//
// op.sequence counts the calls between the two with this tag, with Exchange::kPairSequence set: the other members do
// not see these calls, so they have no number in the group's sequence.
#pragma once

#include "collectives/operation.h"

namespace aiacc {
class ReceiveRecord;  // transports/message_record.h
class SendRecord;
}  // namespace aiacc

namespace aiacc::inter {

//
// `begun` is what was posted of the message before there was an operation for it.
Task<void> send(Operation& op, SendRecord* begun = nullptr);
Task<void> recv(Operation& op, ReceiveRecord* begun = nullptr);

}  // namespace aiacc::inter

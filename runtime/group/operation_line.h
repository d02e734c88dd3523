// OperationLine: running operations of a group that the progress watch supervises through the oldest one, because a
// straggler of the oldest delays all later ones: the group's collectives, or its messages with one rank.
#pragma once

#include <cstdint>

#include "base/intrusive_list.h"
#include "base/time.h"

namespace aiacc {

class GroupOperation;
class WaitingCall;

// It is in the watch's list while it has operations, and until the first look after that.
struct OperationLine : ListNode<OperationLine> {
  IntrusiveList<GroupOperation> operations;  // the oldest first
  Instant last_question{};                   // when the last diagnosis because of a near deadline was started
  // Calls that are no operations, the oldest first: all have the same time limit. The watch makes an operation of the oldest
  // when that has waited for long, and of the next one when that operation has ended.
  IntrusiveList<WaitingCall> waiting;
  int upgraded = 0;           // such operations
  std::uint64_t watched = 0;  // the ticket of the oldest of them at the last look
  Instant waiting_look = {};  // when that one has waited for long
};

}  // namespace aiacc

// OperationLine: running operations of a group that the progress watch supervises through the oldest one, because a
// straggler of the oldest delays all later ones: the group's collectives, or its messages with one rank.
#pragma once

#include "base/intrusive_list.h"
#include "base/time.h"

namespace aiacc {

class GroupOperation;

// It is in the watch's list while it has operations, and until the first look after that.
struct OperationLine : ListNode<OperationLine> {
  IntrusiveList<GroupOperation> operations;  // the oldest first
  Instant last_question{};                   // when the last diagnosis because of a near deadline was started
};

}  // namespace aiacc

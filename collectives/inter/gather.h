// Gather and scatter: the root exchanges one message with each other rank, several at once. A tree would carry most bytes
// log n times, and only the two ends of an uneven block know its length.
#pragma once

#include "collectives/operation.h"

namespace aiacc::inter {

Task<void> gather(Operation& op);
Task<void> scatter(Operation& op);

}  // namespace aiacc::inter

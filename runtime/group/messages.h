// Point-to-point messages of a group: over the loopback, IntraMessages (same host), or the mailbox (other hosts).
#pragma once

#include "runtime/group/dispatch.h"

namespace aiacc {

// A send, recv, sendrecv or recv from any. If the message crosses hosts, the operation's sequence is replaced by the
// pair's.
Task<void> run_message(Operation& operation, Messengers messengers);

}  // namespace aiacc

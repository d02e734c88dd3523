// Messages between two ranks of a group, wherever they are: through the loopback, the host's post, or the mailbox.
#pragma once

#include "runtime/dispatch.h"

namespace aiacc {

// A send, recv, sendrecv or recv from any. Of one that crosses hosts the operation's sequence becomes the pair's.
Task<void> run_message(Operation& operation, Messengers messengers);

}  // namespace aiacc

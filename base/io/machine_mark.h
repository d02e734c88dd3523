// The machine mark: a text that is equal for two processes on one machine with the same view of it.
#pragma once

#include <string>

namespace aiacc::io {

// Contains the running kernel, this process's network, UTS and IPC namespaces, and its file systems at / and /dev/shm;
// not its pid and mount namespaces, because an isolated job has its own. The marks of containers differ, even if these
// share a network. Equal marks are a reason to check and no proof: a copy of a running virtual machine has the mark of
// the original. Empty if the machine does not provide these.
std::string machine_mark();

}  // namespace aiacc::io

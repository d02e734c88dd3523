// What two processes have in common that are on one machine and see the same of it.
#pragma once

#include <string>

namespace aiacc::io {

// Names the running kernel, this process's network, names and ipc (its namespaces), and the file systems that it has as / and
// /dev/shm; not its pid and mount namespaces, of which an isolated job has its own. Containers differ, also where they share a
// network. Equal marks are a reason to look and no proof: a copy of a running virtual machine has the mark of the original.
// Empty if the machine does not tell.
std::string machine_mark();

}  // namespace aiacc::io

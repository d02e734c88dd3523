// A process's name, its standard descriptors, its session, and its pid namespace.
#pragma once

#include <string>

namespace aiacc::io {

// The name that ps and top show (at most 15 bytes).
void set_process_name(const char* name) noexcept;

// Opens /dev/null for each of descriptors 0 to 2 that is closed, so that no later file takes such a number. Returns a bit for
// each that was closed.
unsigned fill_standard_descriptors();

// Replaces a standard descriptor by /dev/null; other copies of the old one stay open.
void close_standard_descriptor(int number);

// Makes the process independent of its parent, for a process that learns of the parent's end in another way: a session
// of its own if possible, and no signal when the parent dies.
void detach_from_parent() noexcept;

// Continues in a child that is process 1 of a new pid namespace with a /proc of its own; the kernel kills everything in
// the namespace when process 1 ends. The calling process stays outside as the parent of process 1, lives as long and
// exits as it does; if it is killed, process 1 is killed too. Without privilege this happens in a user namespace that
// maps the caller's user and group to themselves. Only for a process with one thread. Throws kSystem (kUnsupported if
// the kernel does not allow it) in the caller.
void enter_pid_namespace();

}  // namespace aiacc::io

// What a process is to the rest of the machine: its name in lists, its standard descriptors, a pid namespace of its own.
#pragma once

#include <string>

namespace aiacc::io {

// The name that ps and top show (at most 15 bytes).
void set_process_name(const char* name) noexcept;

// Opens /dev/null for each of descriptors 0 to 2 that is closed, so that no later file takes such a number. Returns a bit for
// each that was closed.
unsigned fill_standard_descriptors();

// Points a standard descriptor at /dev/null; what it was stays open elsewhere if anybody has it.
void close_standard_descriptor(int number);

// Makes the process independent of whoever started it, for one that hears of its end in another way: a session of its own
// where that is possible, and no signal when the parent dies.
void stand_alone() noexcept;

// Has this process continue as process 1 of a new pid namespace, with a /proc of its own, and everything that it starts in
// there: the kernel ends all of it when process 1 ends. The caller's own process stays behind as the parent of process 1,
// lives as long and ends as it does; when it is killed, process 1 is too. Without privilege a user namespace that maps the
// caller's user and group to themselves holds it all.
// Only while the process has one thread. Throws kSystem (kUnsupported where the kernel does not allow it) in the caller.
void enter_pid_namespace();

}  // namespace aiacc::io

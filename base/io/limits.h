// The kernel's limits on this process, as numbers and in messages: which limit was reached, its value, how to raise it.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace aiacc::io {

// The error for a failed call's errno. For limits on descriptors (EMFILE, ENFILE) and processes (EAGAIN from fork) the
// sentence names the limit, its value and what to do; otherwise it is system_error().
Error limit_error(std::string_view what, int errno_value);

// `descriptor` if it is one; otherwise throws limit_error(what, errno).
int checked_descriptor(int descriptor, std::string_view what);

// Raises the soft limit on descriptors to the hard one, once per process. Children that become other programs get the
// original limit back (some programs use select(), or close every number up to the limit).
void raise_descriptor_limit();
// The limit for child processes: the one before raise_descriptor_limit(), or the present one.
rlimit original_descriptor_limit();

// How many bytes of memory this process may lock; nullopt: any number of them, as with CAP_IPC_LOCK.
std::optional<std::uint64_t> lockable_bytes();

}  // namespace aiacc::io

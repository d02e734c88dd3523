// Limits of the kernel on this process, as sentences and as numbers: which one is in the way, what it is, how to raise it.
#pragma once

#include <sys/resource.h>

#include <string>
#include <string_view>

#include "base/error.h"

namespace aiacc::io {

// errno of a failed call as an error. For a limit on descriptors (EMFILE, ENFILE) and processes (EAGAIN from fork) the
// sentence names the limit, its value and the cure; all else is system_error().
Error limit_error(std::string_view what, int errno_value);

// `descriptor` if it is one; otherwise throws limit_error(what, errno).
int checked_descriptor(int descriptor, std::string_view what);

// Raises the soft limit on descriptors to the hard one, once a process, and remembers what it was: children that become
// other programs get the original back (some use select(), or close every number up to the limit).
void raise_descriptor_limit();
// What a child shall have: the limit at start if it was raised, the present one otherwise.
rlimit original_descriptor_limit();

}  // namespace aiacc::io

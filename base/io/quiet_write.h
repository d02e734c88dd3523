// write(2) to what may be a pipe whose reader left, without the signal.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace aiacc::io {

// As write(2); EPIPE comes back as an error and raises no SIGPIPE, whatever its disposition is. For threads that are not
// ours to configure (a user's process); two more system calls than a bare write.
ssize_t write_without_sigpipe(int descriptor, const void* data, std::size_t bytes) noexcept;

}  // namespace aiacc::io

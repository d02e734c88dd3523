// write(2) without SIGPIPE, for a descriptor that may be a pipe without a reader.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace aiacc::io {

// As write(2); EPIPE is returned and raises no SIGPIPE, whatever its disposition is. For processes whose signal
// disposition the library must not change (a user's process); two more system calls than write(2).
ssize_t write_without_sigpipe(int descriptor, const void* data, std::size_t bytes) noexcept;

}  // namespace aiacc::io

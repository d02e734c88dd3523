// Reading from a terminal in a program that a shell may have put in the background.
#pragma once

namespace aiacc::io {

// From now on a read from the terminal fails while another job is in its foreground (SIGTTIN is ignored), which an
// FdStream takes for end of stream. By default the kernel would stop the whole process group. Children are not
// affected.
void take_no_stop_for_reading() noexcept;

// Whether `descriptor` is this process's terminal and another job is in its foreground. False for an invalid
// descriptor.
bool in_background(int descriptor) noexcept;

}  // namespace aiacc::io

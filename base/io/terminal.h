// The terminal as something to read from, for a program that a shell may have put in the background.
#pragma once

namespace aiacc::io {

// From now on the kernel refuses this process what it would read from its terminal while another job is in the foreground, which
// an FdStream takes for the end. By default it would stop the whole process group (SIGTTIN). Children are not affected.
void take_no_stop_for_reading() noexcept;

// Whether `descriptor` is this process's terminal while another job of it is in the foreground. False if it is no descriptor.
bool in_background(int descriptor) noexcept;

}  // namespace aiacc::io

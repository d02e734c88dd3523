#include "base/io/terminal.h"

#include <signal.h>
#include <unistd.h>

namespace aiacc::io {

void take_no_stop_for_reading() noexcept { ::signal(SIGTTIN, SIG_IGN); }

bool in_background(int descriptor) noexcept {
  const pid_t foreground = ::tcgetpgrp(descriptor);
  return foreground > 0 && foreground != ::getpgrp();
}

}  // namespace aiacc::io

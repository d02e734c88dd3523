// Signals to this process as events of its loop. Real: signalfd (base/io/real_signals.h).
#pragma once

#include <span>

#include "base/task/loop.h"

namespace aiacc::io {

class Signals {
 public:
  virtual ~Signals() = default;

  // The next signal, in the order in which the kernel delivers them. One coroutine at a time may wait.
  virtual Task<int> next(Stop& stop) = 0;

  // Stops this process, as SIGTSTP would by default; returns after it was continued.
  virtual void stop_self() noexcept = 0;
};

}  // namespace aiacc::io

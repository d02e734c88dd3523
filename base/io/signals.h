// Signals that are sent to this process, as events of its loop. Real: signalfd (base/io/real_signals.h).
#pragma once

#include <span>

#include "base/task/loop.h"

namespace aiacc::io {

class Signals {
 public:
  virtual ~Signals() = default;

  // The next signal that arrived, in the order in which the kernel hands them out. One waiter at a time.
  virtual Task<int> next(Stop& stop) = 0;

  // Stops this process itself, as SIGTSTP would by default; returns after it was continued.
  virtual void stop_self() noexcept = 0;
};

}  // namespace aiacc::io

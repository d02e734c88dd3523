// RealSignals: signals of this process as events of its loop, by signalfd.
#pragma once

#include <signal.h>

#include <initializer_list>

#include "base/fd.h"
#include "base/io/real_loop.h"
#include "base/io/signals.h"

namespace aiacc::io {

class RealSignals final : public Signals, private Watch {
 public:
  // Blocks `numbers` in the calling thread and in threads that it creates later, so they arrive only here. They stay
  // blocked after the destructor: otherwise a pending one would have its default action. Children of a RealHost have no
  // signal blocked. Signals that were ignored before stay ignored.
  RealSignals(RealLoop& loop, std::initializer_list<int> numbers);
  ~RealSignals() { unwatch(); }

  Task<int> next(Stop& stop) override;
  void stop_self() noexcept override;

 private:
  void ready(Ready) noexcept override { arrived_.set(); }

  Fd signals_;
  Event arrived_;
};

// A signalfd for `numbers`, which are blocked from now on.
Fd make_signalfd(const sigset_t& numbers);

}  // namespace aiacc::io

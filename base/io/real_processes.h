// RealProcesses: Processes over pidfds and /proc. A process is named by the namespaces that give numbers and times their
// meaning, its number, and when it began, because numbers are used again.
#pragma once

#include <cstddef>

#include "base/io/processes.h"
#include "base/io/real_loop.h"

namespace aiacc::io {

class RealProcesses final : public Processes {
 public:
  // The loop outlives what is watched.
  explicit RealProcesses(RealLoop& loop) : loop_(loop) {}
  std::string mine() const override;
  std::unique_ptr<ProcessEnd> watch(const std::string& name) override;

 private:
  RealLoop& loop_;
  std::size_t watched_ = 0;  // ever
};

}  // namespace aiacc::io

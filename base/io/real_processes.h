// RealProcesses: Processes over pidfds and /proc. A process's name consists of its pid and time namespaces, its process
// id, and its start time, because process ids are reused.
#pragma once

#include <cstddef>

#include "base/io/processes.h"
#include "base/io/real_loop.h"

namespace aiacc::io {

class RealProcesses final : public Processes {
 public:
  // The loop must outlive all watches.
  explicit RealProcesses(RealLoop& loop) : loop_(loop) {}
  std::string own_name() const override;
  std::unique_ptr<ProcessEnd> watch(const std::string& name) override;

 private:
  RealLoop& loop_;
  std::size_t watched_ = 0;  // in total
};

}  // namespace aiacc::io

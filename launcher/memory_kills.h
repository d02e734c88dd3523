// Whether the kernel killed a rank for memory: only the control group's counter tells it from any other SIGKILL.
#pragma once

#include <cstdint>
#include <string>

#include "base/io/host.h"

namespace aiacc::launcher {

class MemoryKills {
 public:
  // Finds the memory group of this process, which its ranks share.
  explicit MemoryKills(io::Host& host);

  // True as often as the counter has moved since this object was made.
  bool take_one();

 private:
  std::uint64_t count();

  io::Host& host_;
  std::string file_;  // with a line "oom_kill N"; empty: there is none
  std::uint64_t seen_ = 0;
};

}  // namespace aiacc::launcher

// MemoryKills: detects whether the kernel killed a rank for memory; only the control group's counter distinguishes that
// from any other SIGKILL.
#pragma once

#include <cstdint>
#include <string>

#include "base/io/host.h"

namespace aiacc::launcher {

class MemoryKills {
 public:
  // Finds the memory control group of this process, which its ranks share.
  explicit MemoryKills(io::Host& host);

  // Returns true once for each kill that the counter has recorded since this object was created.
  bool take_one();

 private:
  std::uint64_t count();

  io::Host& host_;
  std::string file_;  // the file with the line "oom_kill N"; empty: none
  std::uint64_t seen_ = 0;
};

}  // namespace aiacc::launcher

// Translates options of mpirun and mpiexec into options of aiaccrun (mpirun_table.h).
#pragma once

#include <string>
#include <vector>

#include "base/options/command_line.h"

namespace aiacc::launcher {

struct Translated {
  CommandLine line;                  // options of aiaccrun alone, each under the spelling that the user chose
  std::vector<std::string> remarks;  // a sentence for each option without effect: what takes its place
};

// Throws UsageError for what cannot be ignored: several programs in one job.
Translated translate_mpirun_options(const CommandLine& line);

}  // namespace aiacc::launcher

// Splits the command line of aiaccrun into its options and the program behind them.
#pragma once

#include <string>
#include <vector>

#include "base/options/command_line.h"
#include "launcher/cli/failure.h"
#include "launcher/cli/options_table.h"

namespace aiacc::launcher {

// Adds the message id and the exit code of a usage error.
UsageError usage_error(const OptionError& error);

// Accepts options of mpirun too. Throws UsageError for an unknown option, a missing value, and a value of an option
// that takes none.
CommandLine split_command_line(const std::vector<std::string>& arguments);

}  // namespace aiacc::launcher

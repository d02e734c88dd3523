// The command line of aiaccrun: its options, and the program behind them.
#pragma once

#include <string>
#include <vector>

#include "base/options/command_line.h"
#include "launcher/failure.h"
#include "launcher/options_table.h"

namespace aiacc::launcher {

// As aiaccrun says it: with the id of the message and the exit code of a usage error.
UsageError usage_error(const OptionError& error);

// Throws UsageError for an unknown option, a value that is missing and one that is not wanted.
CommandLine split_command_line(const std::vector<std::string>& arguments);

}  // namespace aiacc::launcher

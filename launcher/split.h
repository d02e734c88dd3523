// Splits a command line where Boost.ProgramOptions cannot: the program begins at the first word that is no option, options
// may have one dash or two, '_' stands for '-', and "-np 4", "-np=4" and "--np 4" are the same.
#pragma once

#include <string>
#include <vector>

#include "launcher/options_table.h"

namespace aiacc::launcher {

struct GivenOption {
  const OptionRow* row = nullptr;
  std::string typed;  // as the user wrote it, for messages: "-np"
  std::string value;  // "" for a switch
};

struct SplitCommandLine {
  std::vector<GivenOption> options;
  std::vector<std::string> command;
};

// Throws UsageError for an unknown option, a value that is missing and one that is not wanted.
SplitCommandLine split_command_line(const std::vector<std::string>& arguments);

}  // namespace aiacc::launcher

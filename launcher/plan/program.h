// Finds the program of a job before anything is started, by the rules of execvp(3) with the ranks' PATH and directory,
// so that a missing program is one error and not a failure of every rank.
#pragma once

#include <string>

#include "launcher/plan/plan.h"

namespace aiacc::launcher {

// The path that `program` stands for: as typed if it has a slash (relative to the ranks' directory `cwd`), else the first
// executable file of that name in PATH. Throws LaunchError: 127 not found, 126 found but not executable, 2 when
// the working directory is missing.
std::string find_program(const std::string& program, const std::string& cwd, const std::vector<std::string>& env);

}  // namespace aiacc::launcher

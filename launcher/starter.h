// How aiaccrun reaches another host: the command line of ssh, or of what --launch-agent names, around a constant remote one.
// Nothing of the job stands in it: all that is secret or long follows over its standard input.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan.h"

namespace aiacc::launcher {

using Words = std::vector<std::string>;

// This aiaccrun, as it is called on other hosts: libtool's inner binary is called by what it stands for, and a path that a
// shell would not read as one plain word is left to PATH (empty).
std::string remote_program(const std::string& executable);

// Command lines that end in a keeper on `host`, to be tried in this order: the next when there was no aiaccrun (127). Every
// word means itself to sh, csh and fish, as ssh hands them to a login shell. Throws UsageError.
std::vector<Words> starter_commands(const HostPlan& host, const Options& options, const std::string& program);

// As a shell would read it back.
std::string quoted(const std::string& word);
std::string quoted(const Words& words);

}  // namespace aiacc::launcher

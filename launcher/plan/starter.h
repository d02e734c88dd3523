// How aiaccrun reaches another host: the command line of ssh, of srun for a node of the Slurm job around it, or of the
// command of --launch-agent, followed by a constant remote command line. It contains nothing about the job: secret or long data follows over standard input.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/plan.h"

namespace aiacc::launcher {

using Words = std::vector<std::string>;

// The path by which other hosts call this aiaccrun. For libtool's inner binary it is the path of libtool's wrapper. It
// is empty (found by PATH) if a shell would not read the path as one plain word.
std::string remote_program(const std::string& executable);

// Command lines that run a keeper on `host`, to be tried in this order: the next one if aiaccrun was not found (127).
// ssh passes them to a login shell, so no word has a special meaning to sh, csh or fish. Throws UsageError.
std::vector<Words> starter_commands(const HostPlan& host, const Options& options, const std::string& program);

// The environment of such a command: aiaccrun's. srun takes options from variables of the job, which describe its tasks
// and not this step, and gives its own environment to the agent: without those, and without devices of this host.
std::vector<std::string> starter_environment(const HostPlan& host, const Options& options,
                                             const std::vector<std::string>& ours);

// Quoted for a shell.
std::string quoted(const std::string& word);
std::string quoted(const Words& words);

}  // namespace aiacc::launcher

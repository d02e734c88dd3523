// The hosts that a resource manager has given to the job in which aiaccrun was called: Slurm, PBS (Torque), LSF, Grid Engine, or the MPI
// Operator of Kubernetes. aiaccrun takes them where the user names none, as mpirun does. All is read from the variables that the
// manager sets, and from the file that one of them names.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/plan.h"

namespace aiacc::launcher {

struct Allocation {
  std::string name;  // "Slurm job 77"
  std::vector<HostSpec> hosts;
};

// Returns the content of a file, or nullopt if there is no such file. `what` is for the sentence of a UsageError if it cannot be read.
using ReadList = std::function<std::optional<std::string>(const std::string& what, const std::string& file)>;

// None, too, inside of a rank, whose own jobs are not the manager's, and where the manager's file does not exist, as in a container.
// `own_host` is this host's name: an entry with the same first label, if it is the only one, is this host. Throws UsageError: a variable
// or a file that does not say what its manager would.
std::optional<Allocation> find_allocation(const Environment& environment, const std::string& own_host,
                                          const ReadList& read);

// The Slurm job around aiaccrun; without nodes if there is none, or one whose nodes find_allocation() refuses.
SlurmJob slurm_job(const Environment& environment);

// The names of a list as Slurm writes it: "n[1-3,07-09],login,r[1-2]n[0-3]". Throws UsageError; `variable` is what has it.
std::vector<std::string> expand_node_list(std::string_view variable, std::string_view text);

}  // namespace aiacc::launcher

#include "launcher/cli/options_table.h"

#include <array>

namespace aiacc::launcher {

namespace {

using namespace OptionGroup;

constexpr std::array kTable = {
    OptionRow{kRanks, "np", "n", "N", "", false, "0.1.0",
              "Start N ranks. Without it: every slot of the hosts, or -N on each."},
    OptionRow{kRanks, "host", "H", "HOST[:SLOTS],...", "", true, "0.1.0",
              "Run on these hosts, with so many slots each, or one; default: a resource manager's."},
    OptionRow{kRanks, "hostfile", "machinefile", "FILE", "", false, "0.1.0",
              "Take the hosts from a file: lines HOST slots=N."},
    OptionRow{kRanks, "host-discovery-script", "", "FILE", "", false, "0.1.0",
              "Run FILE each second for the hosts of an elastic job: a line each, as HOST[:SLOTS]."},
    OptionRow{kRanks, "slots-per-host", "", "N", "1", false, "0.1.0", "Slots of a line of that script without any."},
    OptionRow{kRanks, "ranks-per-host", "N ppn", "N", "", false, "0.1.0", "Start at most N ranks on each host."},
    OptionRow{kRanks, "oversubscribe", "", "", "no", false, "0.1.0", "Allow more ranks than slots."},
    OptionRow{kRanks, "servers", "", "N", "", false, "0.1.0", "The last N ranks only serve key-value stores."},
    OptionRow{kRanks, "launch-agent", "", "CMD", "ssh", false, "0.1.0",
              "Reach other hosts by CMD HOST COMMAND instead of ssh, or srun for nodes of a Slurm job."},
    OptionRow{kRanks, "separate-hosts", "", "", "no", false, "0.1.0", "Take names of one machine for several hosts."},

    OptionRow{kPlacement, "map-by", "", "WHAT", "slot", false, "0.1.0",
              "Where ranks go: slot (host after host, spread evenly), node (the hosts in turn), core (one after the "
              "other), numa or package (the domains in turn)."},
    OptionRow{kPlacement, "bind-to", "", "WHAT", "auto", false, "0.1.0",
              "What a rank may run on: auto (an equal share of the cores), core, numa, package or none."},
    OptionRow{kPlacement, "report-bindings", "", "", "no", false, "0.1.0",
              "Print what the kernel has bound each rank to."},

    OptionRow{kEnvironment, "export", "x", "NAME[=VALUE]", "", true, "0.1.0",
              "Set a variable for the ranks, or forward aiaccrun's own; NAME may end in '*' and then means all that "
              "begin so."},
    OptionRow{kEnvironment, "wdir", "wd", "DIR", "aiaccrun's", false, "0.1.0", "Working directory of the ranks."},
    OptionRow{kEnvironment, "compat-env", "", "FAMILY,...", "none", false, "0.1.0",
              "Also set the variables of other launchers: horovod, ompi."},
    OptionRow{kEnvironment, "provide", "", "PACKAGE,...", "none", false, "0.1.0",
              "Python packages that aiacc stands in for: horovod, perseus, and gloo of torch.distributed."},

    OptionRow{kOutput, "tag-output", "", "", "no", false, "0.1.0", "Begin each line of output with its rank."},
    OptionRow{kOutput, "quiet", "q", "", "no", false, "0.1.0", "Leave out remarks about cores, hosts and options."},
    OptionRow{kOutput, "stdin", "", "RANK", "0", false, "0.1.0", "Rank that reads standard input, or none."},

    OptionRow{kLife, "min-np", "min-num-proc", "N", "", false, "0.1.0",
              "Go on when ranks fail, as long as N are left."},
    OptionRow{kLife, "max-np", "max-num-proc", "N", "", false, "0.1.0",
              "Replace ranks that fail (with --min-np), and grow to N (with a script)."},
    OptionRow{kLife, "reset-limit", "", "N", "none", false, "0.1.0", "End at the failure after N replacements."},
    OptionRow{kLife, "elastic-timeout", "", "SECONDS", "600", false, "0.1.0",
              "With a script: how long fewer than --min-np ranks wait for hosts."},
    OptionRow{kLife, "blacklist-cooldown-range", "", "MIN MAX", "5 300", false, "0.1.0",
              "Seconds without new ranks for a host where one failed: first, and at most."},
    OptionRow{kLife, "timeout", "", "SECONDS", "none", false, "0.1.0", "End the job after this time; exit code 124."},
    OptionRow{kLife, "kill-grace", "", "SECONDS", "30", false, "0.1.0", "From asking ranks to end to killing them."},
    OptionRow{kLife, "isolate", "", "", "no", false, "0.1.0", "Run the ranks in a pid namespace of their own."},

    OptionRow{kInformation, "dry-run", "", "", "no", false, "0.1.0", "Print what would be started where, and exit."},
    OptionRow{kInformation, "version", "V", "", "no", false, "0.1.0", "Print the version and exit."},
    OptionRow{kInformation, "help", "h", "", "no", false, "0.1.0", "Print this text and exit."},
};

}  // namespace

OptionTable option_table() noexcept { return kTable; }

}  // namespace aiacc::launcher

#include "launcher/cli/mpirun_table.h"

#include <fmt/format.h>

#include <array>
#include <regex>

#include "launcher/cli/options_table.h"

namespace aiacc::launcher {

namespace {

using enum MpirunOption::Effect;

constexpr std::string_view kPlan = "--dry-run prints the plan, and --report-bindings what ranks are bound to";
constexpr std::string_view kOneFailure = "a job ends with its first failure, which the closing line names";
constexpr std::string_view kShare = "a rank gets its equal share of the cores (--bind-to auto) or one object of them";
constexpr std::string_view kFiles = "the program and its files must be on each host, at the same path";
constexpr std::string_view kParameters =
    "parameters of Open MPI mean nothing here; the settings of aiacc are variables, given by -x (man aiacc-env)";
constexpr std::string_view kInterface =
    "a host is reached under the address by which ssh reached it; name hosts by their names on the network that is "
    "meant";
constexpr std::string_view kNoTime = "lines carry no time; pipe them through ts";
constexpr std::string_view kNoCycles = "ranks agree on what comes next without cycles and without a cache";
constexpr std::string_view kTuner = "-x AIACC_TUNE=yes tunes while the job runs";
constexpr std::string_view kTimeline = "-x AIACC_TIMELINE=FILE writes the timeline of all ranks";
constexpr std::string_view kStall = "-x AIACC_LATE_AFTER=60s says when ranks tell for whom they wait";
constexpr std::string_view kLog = "-x AIACC_LOG=info says what the library logs";
constexpr std::string_view kOneCommand =
    "hosts are named by --host or --hostfile; start aiaccrun once, and it starts the ranks of all of them (a single "
    "node, and rank 0, are taken)";
constexpr std::string_view kMeeting =
    "ranks find each other through aiaccrun, which sets MASTER_ADDR and MASTER_PORT too";
constexpr std::string_view kOutput = "the output of all ranks comes out of aiaccrun";
constexpr std::string_view kSeveral =
    "several programs in one job are not supported; start one program that looks at RANK, with --servers N for ranks "
    "that serve";

constexpr std::array kOptions = {
    MpirunOption{"c", "", "N", kMeans, "np"},
    MpirunOption{"hosts", "hostlist", "HOST[:SLOTS],...", kMeans, "host"},
    MpirunOption{"f", "default-hostfile", "FILE", kMeans, "hostfile"},
    MpirunOption{"npernode", "perhost grr", "N", kMeans, "ranks-per-host"},
    MpirunOption{"pernode", "rr", "", kMeans, "ranks-per-host=1"},
    MpirunOption{"npersocket", "", "N", kNone, "--map-by package takes the packages in turn, and -N limits a host"},
    MpirunOption{"nooversubscribe", "no-oversubscribe", "", kAlready, "more ranks than slots are refused"},
    MpirunOption{"nolocal", "skip-launch-node", "", kNone,
                 "this host takes part only where --host or --hostfile names it"},
    MpirunOption{"usize", "", "N", kNone, "a job has as many ranks as -np says"},
    MpirunOption{"rmk", "", "NAME", kNone,
                 "hosts come from the resource manager whose variables are set, or by --host or --hostfile"},
    MpirunOption{"launcher", "bootstrap", "NAME", kNone,
                 "hosts are reached by ssh, nodes of a Slurm job by srun, or all by the command of --launch-agent"},
    MpirunOption{"launcher-exec", "bootstrap-exec", "CMD", kMeans, "launch-agent"},
    MpirunOption{"iface", "network-interface network-interfaces", "NAME", kNone, kInterface},
    MpirunOption{"prefix", "", "DIR", kNone,
                 "PATH and LD_LIBRARY_PATH of aiaccrun reach all hosts; set them, or give them by -x"},
    MpirunOption{"noprefix", "no-prefix", "", kAlready, "nothing is put before PATH and LD_LIBRARY_PATH"},
    MpirunOption{"path", "", "DIR", kNone, "give the program with its directory, or -x PATH=DIR"},
    MpirunOption{"app", "configfile", "FILE", kRefused, kSeveral},

    MpirunOption{"byslot", "", "", kMeans, "map-by=slot"},
    MpirunOption{"bynode", "", "", kMeans, "map-by=node"},
    MpirunOption{"bycore", "", "", kMeans, "map-by=core"},
    MpirunOption{"bysocket", "", "", kMeans, "map-by=package"},
    MpirunOption{"bind-to-core", "", "", kMeans, "bind-to=core"},
    MpirunOption{"bind-to-socket", "", "", kMeans, "bind-to=package"},
    MpirunOption{"bind-to-none", "", "", kMeans, "bind-to=none"},
    MpirunOption{"rank-by", "", "WHAT", kNone, "ranks are numbered in the order of --map-by"},
    MpirunOption{"rankfile", "rf", "FILE", kNone, "ranks are placed by --map-by and bound by --bind-to"},
    MpirunOption{"cpu-set", "cpu-list", "LIST", kNone,
                 "the cores are those that aiaccrun may run on; start it by taskset -c LIST"},
    MpirunOption{"cpus-per-proc", "cpus-per-rank", "N", kNone, kShare},
    MpirunOption{"use-hwthread-cpus", "", "", kNone, "a rank is bound to all hardware threads of its cores"},
    MpirunOption{
        "membind", "mem-bind", "WHAT", kNone,
        "memory comes from the NUMA domain of the core that first writes to it; --bind-to numa keeps ranks there"},
    MpirunOption{"gpus-per-proc", "", "N", kNone, "ranks see all GPUs; choose by LOCAL_RANK"},
    MpirunOption{"display-map", "display-allocation display-devel-map display-topo print-rank-map info", "", kNone,
                 kPlan},
    MpirunOption{"display", "", "WHAT,...", kNone, kPlan},
    MpirunOption{"do-not-launch", "", "", kMeans, "dry-run"},

    MpirunOption{"genv", "env", "NAME VALUE", kMeans, "export"},
    MpirunOption{"genvlist", "envlist", "NAME,...", kMeans, "export"},
    MpirunOption{"genvall", "envall", "", kMeans, "export=*"},
    MpirunOption{"genvnone", "envnone", "", kNone,
                 "ranks of this host inherit the environment of aiaccrun; start it by env -i for an empty one"},
    MpirunOption{"mca", "gmca omca gomca prtemca gprtemca pmixmca gpmixmca", "KEY VALUE", kNone, kParameters},
    MpirunOption{"tune", "am", "FILE", kNone, kParameters},
    MpirunOption{"preload-binary", "", "", kNone, kFiles},
    MpirunOption{"preload-files", "", "FILE,...", kNone, kFiles},
    MpirunOption{"tmpdir", "", "DIR", kAlready, "a job writes nothing to a temporary directory"},

    MpirunOption{"l", "prepend-rank", "", kMeans, "tag-output"},
    MpirunOption{"prepend-pattern", "", "PATTERN", kNone, "--tag-output begins each line with its rank"},
    MpirunOption{"timestamp-output", "prefix-output-with-timestamp prefix-timestamp", "", kNone, kNoTime},
    MpirunOption{"output", "", "WHAT,...", kNone, "--tag-output begins each line with its rank"},
    MpirunOption{
        "output-filename", "outfile-pattern errfile-pattern", "NAME", kNone,
        "the output of all ranks comes out of aiaccrun; for a file a rank start sh -c 'exec PROGRAM >out.$RANK'"},
    MpirunOption{"merge-stderr-to-stdout", "", "", kNone, "write 2>&1 behind the command"},
    MpirunOption{"stream-buffering", "", "N", kNone, "lines are passed on whole, when a rank has written them"},
    MpirunOption{"v", "verbose d debug-devel", "", kNone,
                 "--dry-run shows what would be started, and -x AIACC_LOG=info what the library does"},

    MpirunOption{"allow-run-as-root", "", "", kAlready, "root may start jobs"},
    MpirunOption{"enable-recovery", "disable-auto-cleanup", "", kNone, kOneFailure},
    MpirunOption{"max-restarts", "", "N", kNone, kOneFailure},
    MpirunOption{"print-all-exitcodes", "report-child-jobs-separately", "", kNone, kOneFailure},
    MpirunOption{"get-stack-traces", "report-state-on-timeout", "", kNone,
                 "-x AIACC_RECORDS=FILE writes the last operations of each rank"},

    MpirunOption{"gloo", "mpi jsrun tcp mpi-threads-disable no-mpi-threads-disable", "", kNone,
                 "ranks use neither Gloo nor MPI"},
    MpirunOption{"mpi-args", "binding-args", "TEXT", kNone, "give the options to aiaccrun itself"},
    MpirunOption{"config-file", "", "FILE", kNone, "give the options on the command line"},
    MpirunOption{"check-build", "cb", "", kRefused, "aiacc-info says what there is"},
    MpirunOption{"ssh-port", "p ssh-identity-file i", "VALUE", kNone,
                 "ssh has ports and keys from its own configuration, or from --launch-agent"},
    MpirunOption{"start-timeout", "gloo-timeout-seconds", "SECONDS", kNone,
                 "-x AIACC_INIT_TIMEOUT=30s says how long ranks wait for each other at their start"},
    MpirunOption{"fusion-threshold-mb", "", "MB", kNone, "-x AIACC_FUSION_BYTES=64M sets it"},
    MpirunOption{"cycle-time-ms", "cache-capacity", "N", kNone, kNoCycles},
    MpirunOption{"disable-cache", "", "", kNone, kNoCycles},
    MpirunOption{"hierarchical-allreduce",
                 "no-hierarchical-allreduce hierarchical-allgather no-hierarchical-allgather torus-allreduce "
                 "no-torus-allreduce",
                 "", kNone, "the algorithm is chosen by size and by the hosts of the ranks"},
    MpirunOption{"autotune", "no-autotune", "", kNone, kTuner},
    MpirunOption{"autotune-log-file",
                 "autotune-warmup-samples autotune-steps-per-sample autotune-bayes-opt-max-samples "
                 "autotune-gaussian-process-noise",
                 "VALUE", kNone, kTuner},
    MpirunOption{"timeline-filename", "", "FILE", kNone, kTimeline},
    MpirunOption{"timeline-mark-cycles", "no-timeline-mark-cycles", "", kNone, kTimeline},
    MpirunOption{"stall-check", "no-stall-check", "", kNone, kStall},
    MpirunOption{"stall-check-warning-time-seconds", "stall-check-shutdown-time-seconds", "SECONDS", kNone, kStall},
    MpirunOption{"num-nccl-streams", "", "N", kNone,
                 "-x AIACC_FUSION_STREAMS=N says how many allreduces run at a time"},
    MpirunOption{"thread-affinity", "", "N", kNone, kShare},
    MpirunOption{"log-level", "", "LEVEL", kNone, kLog},
    MpirunOption{"log-with-timestamp", "log-without-timestamp log-hide-timestamp no-log-hide-timestamp", "", kNone,
                 kLog},

    MpirunOption{"nproc-per-node", "", "N", kMeans, "ranks-per-host"},
    MpirunOption{"nnodes", "", "N", kRefused, kOneCommand},
    MpirunOption{"node-rank", "", "N", kRefused, kOneCommand},
    MpirunOption{"standalone", "", "", kAlready,
                 "a job runs on this host where neither a list of hosts nor a resource manager names others"},
    MpirunOption{"master-addr", "master-port local-addr rdzv-backend rdzv-endpoint rdzv-id rdzv-conf", "VALUE", kNone,
                 kMeeting},
    MpirunOption{"module", "m", "NAME", kRefused, "write python -m NAME as the program"},
    MpirunOption{"run-path", "", "", kRefused, "write python FILE as the program"},
    MpirunOption{"no-python", "", "", kAlready,
                 "the program is started as it is, and a script by python in front of it"},
    MpirunOption{"log-dir",
                 "redirects r tee t local-ranks-filter logs-specs duplicate-stdout-filters duplicate-stderr-filters "
                 "event-log-handler",
                 "VALUE", kNone, kOutput},
    MpirunOption{"monitor-interval", "", "SECONDS", kNone, "the end of a rank is seen at once"},
    MpirunOption{"start-method", "", "NAME", kNone, "each rank is a program of its own"},
    MpirunOption{"numa-binding", "", "WHAT", kNone, kShare},
    MpirunOption{"shutdown-timeout", "", "SECONDS", kMeans, "kill-grace"},
    MpirunOption{"signals-to-handle", "", "NAME,...", kNone, "signals that end aiaccrun reach all ranks"},
    MpirunOption{"virtual-local-rank", "", "", kNone, "LOCAL_RANK is the number of a rank on its host"},
    MpirunOption{"role", "", "NAME", kNone, "all ranks of a job have one role"},
};

constexpr std::string_view kMap = "map-by";
constexpr std::string_view kBind = "bind-to";
constexpr std::string_view kQualifier = "qualifier";
constexpr std::string_view kNoSuchDomain = "caches are no domains here";
constexpr std::string_view kNoList = "cores cannot be listed rank by rank; start aiaccrun by taskset -c LIST";

constexpr MpirunValue kValues[] = {
    {kMap, "hwthread", "map-by=core", "hardware threads of a core are not told apart"},
    {kMap, "l1cache", "map-by=core", ""},
    {kMap, "l2cache", "map-by=core", kNoSuchDomain},
    {kMap, "l3cache", "map-by=numa", kNoSuchDomain},
    {kMap, "board", "map-by=node", ""},
    {kMap, "host", "map-by=node", ""},
    {kMap, "machine", "map-by=node", ""},
    {kMap, "seq", "", "ranks go to the hosts in the order of --host with --map-by slot"},
    {kMap, "dist", "", "the distance to a device is not looked at; ranks are placed as with --map-by slot"},
    {kMap, "rankfile", "", "ranks are placed as with --map-by slot"},
    {kMap, "pe-list", "", kNoList},
    {kBind, "hwthread", "bind-to=core", "hardware threads of a core are not told apart"},
    {kBind, "l1cache", "bind-to=core", ""},
    {kBind, "l2cache", "bind-to=core", kNoSuchDomain},
    {kBind, "l3cache", "bind-to=numa", kNoSuchDomain},
    {kBind, "board", "bind-to=none", ""},
    {kBind, "machine", "bind-to=none", ""},
    {kBind, "user", "", kNoList},
    {kBind, "rr", "", kShare},
    {kQualifier, "oversubscribe", "oversubscribe", ""},
    {kQualifier, "nooversubscribe", "", ""},
    {kQualifier, "overload-allowed", "", ""},
    {kQualifier, "overload", "", ""},
    {kQualifier, "if-supported", "", ""},
    {kQualifier, "report", "report-bindings", ""},
    {kQualifier, "display", "report-bindings", ""},
    {kQualifier, "nolocal", "", "this host takes part only where --host or --hostfile names it"},
    {kQualifier, "", "", kShare},  // any other
    {"nproc-per-node", "cpu", "ranks-per-host=CPUS", ""},
    {"nproc-per-node", "auto", "ranks-per-host=CPUS", "one rank for each processor of this host; GPUs are not counted"},
    {"nnodes", "1", "", ""},
    {"nnodes", "1:1", "", ""},
    {"node-rank", "0", "", ""},
    {"launcher", "ssh", "", ""},
    {"launcher", "rsh", "", ""},
    {"output", "tag", "tag-output", ""},
    {"output", "tag-detailed", "tag-output", ""},
    {"output", "tag-fullname", "tag-output", ""},
    {"output", "timestamp", "", kNoTime},
    {"mca", "plm-rsh-agent", "launch-agent", ""},
    {"mca", "plm-ssh-agent", "launch-agent", ""},
    {"mca", "btl-tcp-if-include", "", kInterface},
    {"mca", "btl-tcp-if-exclude", "", kInterface},
    {"mca", "oob-tcp-if-include", "", kInterface},
    {"mca", "oob-tcp-if-exclude", "", kInterface},
    {"mca", "prte-if-include", "", kInterface},
};

OptionRow row_of(const MpirunOption& option) {
  return {"Options of mpirun", option.name, option.aliases, option.argument, "", true, "0.1.0", option.text};
}

// "--map-by node" of "map-by=node".
std::string meant_mdoc(std::string_view means) {
  const std::size_t equals = means.find('=');
  std::string text = fmt::format(".Fl {}", spelled(means.substr(0, equals)).substr(1));
  if (equals != std::string_view::npos) text += fmt::format(" Cm {}", means.substr(equals + 1));
  return text + " .";
}

std::string verb_of(MpirunOption::Effect effect) {
  switch (effect) {
    case kMeans: return "Means";
    case kAlready: return "Is so already:";
    case kNone: return "Has no effect:";
    case kRefused: return "Refused:";
  }
  return {};
}

}  // namespace

std::span<const MpirunOption> mpirun_options() noexcept { return kOptions; }
std::span<const MpirunValue> mpirun_values() noexcept { return kValues; }

OptionTable mpirun_option_table() {
  static const std::array kRows = [] {
    std::array<OptionRow, kOptions.size()> rows;
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = row_of(kOptions[i]);
    return rows;
  }();
  return kRows;
}

std::vector<std::string> mpirun_options_mdoc() {
  std::vector<std::string> lines;
  for (const MpirunOption& option : kOptions) {
    const std::string names = all_spellings(row_of(option)).substr(1);
    std::string item = ".It Fl " + std::regex_replace(names, std::regex(", -"), " , Fl ");
    if (!option.argument.empty()) item += fmt::format(" Ar {}", option.argument);
    lines.push_back(std::move(item));
    lines.push_back(verb_of(option.effect));
    lines.push_back(option.effect == kMeans ? meant_mdoc(option.text) : fmt::format("{}.", option.text));
  }
  return lines;
}

std::string_view several_programs() noexcept { return kSeveral; }

}  // namespace aiacc::launcher

// launcher/cli: aiaccrun's command line: options and their table, help, lists of hosts, and the sentences, ids and exit codes
// of failures. Not here: anything that looks at the machine or decides where ranks go (launcher/plan).
//
// Options: the command line of aiaccrun as values with their origin. Slots, cores and programs are checked later, by
// plan.h and program.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "launcher/cli/failure.h"

namespace aiacc::launcher {

// Where a value came from; --dry-run prints it.
enum class Source : std::uint8_t { kDefault, kFlag, kAllocation };

template <typename T>
struct Setting {
  T value{};
  Source source = Source::kDefault;
  bool given() const noexcept { return source != Source::kDefault; }
};

inline constexpr int kNoRank = -1;
inline constexpr int kNoLimit = -1;

enum class MapBy : std::uint8_t { kSlot, kNode, kCore, kNuma, kPackage };
enum class BindTo : std::uint8_t { kAuto, kCore, kNuma, kPackage, kNone };

// One entry of a list of hosts. "a" is one slot, "a:4" four; the plan adds up the slots of a name that occurs twice.
struct HostSpec {
  std::string name;
  int slots = 1;
  std::string user{};   // empty: ssh's choice
  int port = 0;         // of the host's sshd; 0: ssh's choice
  std::string where{};  // "-H", "line 3 of FILE": for messages
  bool operator==(const HostSpec& other) const {
    return name == other.name && slots == other.slots && user == other.user && port == other.port;
  }
};

// One -x. Without a value, the variable of aiaccrun's environment is forwarded; then `name` may end in '*', which means
// all variables with that prefix.
struct Forward {
  std::string name;
  std::optional<std::string> value;
  bool operator==(const Forward&) const = default;
};

// How long a host gets no ranks after one has failed there: the first time, and at most.
struct CooldownRange {
  Duration first = std::chrono::seconds(5);
  Duration longest = std::chrono::seconds(300);
};

struct CompatEnv {
  bool horovod = false;
  bool ompi = false;
};

inline constexpr int kMostRanks = 100'000;  // more is surely a typing error

struct Options {
  enum class Action : std::uint8_t { kRun, kHelp, kVersion };
  Action action = Action::kRun;

  Setting<int> ranks;                    // -np; 0: not given
  Setting<std::vector<HostSpec>> hosts;  // of --host, of --hostfile after it was read, or of a resource manager
  std::string allocation;                // which has given them: "Slurm job 77"
  std::string no_allocation;             // a remark: why those of a resource manager were not found
  Setting<std::string> host_file;
  Setting<std::string> launch_agent;  // empty: ssh
  Setting<bool> separate_hosts;
  Setting<int> ranks_per_host;  // -N; 0: not given
  Setting<bool> oversubscribe;
  Setting<std::vector<Forward>> forward;
  Setting<std::string> wdir;  // empty: aiaccrun's own
  Setting<MapBy> map_by;
  Setting<BindTo> bind_to;
  Setting<bool> report_bindings;
  Setting<bool> tag_output;
  Setting<bool> quiet;
  Setting<int> input_rank;   // --stdin: the rank that reads aiaccrun's standard input; kNoRank: none
  Setting<int> min_ranks;    // --min-np: the job goes on while so many have not failed; 0: not given
  Setting<int> max_ranks;    // --max-np: lost ranks are replaced, and the job grows, up to so many; 0: not given
  Setting<int> reset_limit;  // --reset-limit: the most worlds after the first; kNoLimit: not given
  Setting<std::string> discovery_script;  // --host-discovery-script; empty: the job stays on its hosts
  Setting<int> slots_per_host;            // --slots-per-host: of lines of the script without slots
  Setting<CooldownRange> cooldown;        // --blacklist-cooldown-range
  Setting<Duration> elastic_timeout;      // --elastic-timeout; zero: none
  Setting<Duration> timeout;              // zero: none
  Setting<Duration> kill_grace;
  Setting<bool> dry_run;
  Setting<CompatEnv> compat_env;
  Setting<std::vector<std::string>> provide;  // Python packages, each once
  Setting<int> servers;                       // --servers: the last ranks, which only serve key-value stores
  Setting<bool> isolate;

  std::vector<std::string> ignored;  // a sentence for each option of mpirun without effect
  std::vector<std::string> command;  // the program and its arguments; empty only with kHelp and kVersion
};

// The arguments after the launcher's own name. Throws UsageError: one sentence, the nearest known option for an unknown one.
Options parse_options(const std::vector<std::string>& arguments);
Options parse_options(int argc, const char* const* argv);  // argv[0] is skipped

std::string help_text();
std::string version_text();

// A line for each option of the table: its value as a user would type it, and its origin.
std::string describe_options(const Options& options);

std::string_view name_of(MapBy by) noexcept;
std::string_view name_of(BindTo to) noexcept;

}  // namespace aiacc::launcher

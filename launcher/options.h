// What the command line of aiaccrun says, as values with their origin. Nothing here knows the machine: slots, cores and
// programs are looked at by plan.h and program.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "launcher/failure.h"

namespace aiacc::launcher {

// Where a value came from; --dry-run prints it.
enum class Source : std::uint8_t { kDefault, kFlag };

template <typename T>
struct Setting {
  T value{};
  Source source = Source::kDefault;
  bool given() const noexcept { return source != Source::kDefault; }
};

inline constexpr int kNoRank = -1;

enum class MapBy : std::uint8_t { kSlot, kNode, kCore, kNuma, kPackage };
enum class BindTo : std::uint8_t { kAuto, kCore, kNuma, kPackage, kNone };

// One entry of a list of hosts. "a" is one slot, "a:4" four; a name that stands twice adds up (in the plan).
struct HostSpec {
  std::string name;
  int slots = 1;
  std::string user{};   // empty: whoever ssh takes
  int port = 0;         // of the host's sshd; 0: whatever ssh takes
  std::string where{};  // "-H", "line 3 of FILE": for messages
  bool operator==(const HostSpec& other) const {
    return name == other.name && slots == other.slots && user == other.user && port == other.port;
  }
};

// One -x. Without a value the launcher's own is taken; `name` may end in '*' then, and stands for all that begin so.
struct Forward {
  std::string name;
  std::optional<std::string> value;
  bool operator==(const Forward&) const = default;
};

struct CompatEnv {
  bool horovod = false;
  bool ompi = false;
};

struct Options {
  enum class Action : std::uint8_t { kRun, kHelp, kVersion };
  Action action = Action::kRun;

  Setting<int> ranks;                    // -np; 0: not given
  Setting<std::vector<HostSpec>> hosts;  // of --host; of --hostfile once that was read
  Setting<std::string> host_file;
  Setting<std::string> launch_agent;  // empty: ssh
  Setting<bool> separate_hosts;
  Setting<int> ranks_per_host;  // -N; 0: not given
  Setting<bool> oversubscribe;
  Setting<std::vector<Forward>> forward;
  Setting<std::string> wdir;  // empty: the launcher's
  Setting<MapBy> map_by;
  Setting<BindTo> bind_to;
  Setting<bool> report_bindings;
  Setting<bool> tag_output;
  Setting<int> input_rank;    // --stdin: the rank that reads aiaccrun's; kNoRank: none
  Setting<Duration> timeout;  // zero: none
  Setting<Duration> kill_grace;
  Setting<bool> dry_run;
  Setting<CompatEnv> compat_env;
  Setting<bool> isolate;

  std::vector<std::string> command;  // the program and its arguments; empty only with kHelp and kVersion
};

// The arguments after the launcher's own name. Throws UsageError: one sentence, the nearest known option for an unknown one.
Options parse_options(const std::vector<std::string>& arguments);
Options parse_options(int argc, const char* const* argv);  // argv[0] is skipped

std::string help_text();
std::string version_text();

// A line for each option of the table: its value as it would be typed, and where it came from.
std::string describe_options(const Options& options);

std::string_view name_of(MapBy by) noexcept;
std::string_view name_of(BindTo to) noexcept;

}  // namespace aiacc::launcher

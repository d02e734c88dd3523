#include "launcher/options_table.h"

#include <array>
#include <vector>

#include "base/nearest.h"

namespace aiacc::launcher {

namespace {

using enum OptionGroup;

constexpr std::array kTable = {
    OptionRow{kRanks, "np", "n", "N", "", false, "0.1.0",
              "Start N ranks. Without it: every slot of --host, or -N on each host."},
    OptionRow{
        kRanks, "host", "H", "HOST[:SLOTS],...", "", true, "0.1.0",
        "Run on these hosts, with so many slots each (one if no number is given); USER@HOST for another user there."},
    OptionRow{kRanks, "hostfile", "machinefile", "FILE", "", false, "0.1.0",
              "Take the hosts from a file: a line each, as HOST slots=N."},
    OptionRow{kRanks, "ranks-per-host", "N ppn", "N", "", false, "0.1.0", "Start at most N ranks on each host."},
    OptionRow{kRanks, "oversubscribe", "", "", "no", false, "0.1.0", "Allow more ranks than slots."},
    OptionRow{kRanks, "launch-agent", "", "CMD", "ssh", false, "0.1.0",
              "Reach other hosts by CMD HOST COMMAND instead of ssh; CMD may have several words."},

    OptionRow{kPlacement, "map-by", "", "WHAT", "slot", false, "0.1.0",
              "Where ranks go: slot (host after host, evenly over its usable cores), node (the hosts in turn), core "
              "(one core "
              "after the other), numa or package (one domain after the other, in turn)."},
    OptionRow{kPlacement, "bind-to", "", "WHAT", "auto", false, "0.1.0",
              "What a rank may run on: auto (its equal share of the usable cores), core, numa, package or none."},
    OptionRow{kPlacement, "report-bindings", "", "", "no", false, "0.1.0",
              "Print for each rank what it is bound to, as the kernel reports it."},

    OptionRow{kEnvironment, "export", "x", "NAME[=VALUE]", "", true, "0.1.0",
              "Set a variable for the ranks, or forward aiaccrun's own; NAME may end in '*' and then means all that "
              "begin so."},
    OptionRow{kEnvironment, "wdir", "wd", "DIR", "aiaccrun's", false, "0.1.0", "Working directory of the ranks."},
    OptionRow{kEnvironment, "compat-env", "", "FAMILY,...", "none", false, "0.1.0",
              "Also set the variables of other launchers: horovod, ompi."},

    OptionRow{kOutput, "tag-output", "", "", "no", false, "0.1.0",
              "Begin each line of output with the rank that wrote it."},

    OptionRow{kLife, "timeout", "", "SECONDS", "none", false, "0.1.0",
              "End the job after this time, with exit code 124."},
    OptionRow{kLife, "kill-grace", "", "SECONDS", "30", false, "0.1.0",
              "Time between asking ranks to end and killing them."},
    OptionRow{kLife, "isolate", "", "", "no", false, "0.1.0",
              "Run the ranks in a pid namespace of their own, so that the kernel itself ends all of them."},

    OptionRow{kInformation, "dry-run", "", "", "no", false, "0.1.0",
              "Print what would be started, where and with what, and exit with 0."},
    OptionRow{kInformation, "version", "V", "", "no", false, "0.1.0", "Print the version and exit."},
    OptionRow{kInformation, "help", "h", "", "no", false, "0.1.0", "Print this text and exit."},
};

// Calls visit(name) with the long name and then each alias; stops when it returns true.
template <typename Visit>
bool any_name(const OptionRow& row, Visit visit) {
  if (visit(row.name)) return true;
  std::string_view rest = row.aliases;
  while (!rest.empty()) {
    const std::size_t blank = rest.find(' ');
    if (visit(rest.substr(0, blank))) return true;
    rest = blank == std::string_view::npos ? std::string_view{} : rest.substr(blank + 1);
  }
  return false;
}

}  // namespace

std::span<const OptionRow> option_table() noexcept { return kTable; }

std::string_view title(OptionGroup group) noexcept {
  switch (group) {
    case kRanks: return "Ranks and hosts";
    case kPlacement: return "Placement";
    case kEnvironment: return "Environment and directory";
    case kOutput: return "Output";
    case kLife: return "Life of the job";
    case kInformation: return "Information";
  }
  return "";
}

const OptionRow* find_option(std::string_view name) noexcept {
  for (const OptionRow& row : kTable) {
    if (any_name(row, [&](std::string_view known) { return known == name; })) return &row;
  }
  return nullptr;
}

std::string nearest_option(std::string_view name) {
  std::vector<std::string_view> names;
  for (const OptionRow& row : kTable) {
    any_name(row, [&](std::string_view known) {
      names.push_back(known);
      return false;
    });
  }
  return spelled(nearest(name, names));
}

std::string spelled(std::string_view name) { return std::string(name.size() <= 2 ? "-" : "--").append(name); }

std::string all_spellings(const OptionRow& row) {
  std::string text;
  any_name(row, [&](std::string_view name) {
    if (name != row.name) text += spelled(name) + ", ";
    return false;
  });
  return text + spelled(row.name);
}

}  // namespace aiacc::launcher

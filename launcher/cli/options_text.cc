// Texts about aiaccrun's options: --help, --version, and the values with their origin for --dry-run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "include/aiacc/aiacc.h"
#include "launcher/cli/options.h"
#include "launcher/cli/options_table.h"

namespace aiacc::launcher {

namespace {

std::string yes_or_no(bool value) { return value ? "yes" : "no"; }

std::string in_seconds(Duration span) { return fmt::format("{}", seconds(span)); }

std::string count_or_nothing(int value) { return value == 0 ? "" : std::to_string(value); }

std::string in_words(const std::vector<HostSpec>& hosts) {
  std::string text;
  for (const HostSpec& host : hosts) {
    const bool bracketed = host.name.find(':') != std::string::npos;
    text += fmt::format("{}{}{}{}:{}", text.empty() ? "" : ",", host.user, host.user.empty() ? "" : "@",
                        bracketed ? "[" + host.name + "]" : host.name, host.slots);
  }
  return text;
}

// Names only: values may be secret, and --dry-run is pasted into bug reports.
std::string in_words(const std::vector<Forward>& forwards) {
  std::string text;
  for (const Forward& forward : forwards) {
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", forward.name, forward.value ? "=..." : "");
  }
  return text;
}

std::string in_words(const CompatEnv& families) {
  std::vector<std::string_view> names;
  if (families.horovod) names.emplace_back("horovod");
  if (families.ompi) names.emplace_back("ompi");
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ","));
}

std::string in_words(const std::vector<std::string>& packages) {
  return packages.empty() ? "none" : fmt::format("{}", fmt::join(packages, ","));
}

struct Shown {
  std::string value;
  Source source = Source::kDefault;
};

template <typename T>
Shown shown(const Setting<T>& setting, std::string value) {
  return {std::move(value), setting.source};
}

// All options except those that only print something.
std::vector<std::pair<std::string_view, Shown>> all_values(const Options& o) {
  return {
      {"np", shown(o.ranks, count_or_nothing(o.ranks.value))},
      {"host", shown(o.hosts, in_words(o.hosts.value))},
      {"hostfile", shown(o.host_file, o.host_file.value)},
      {"host-discovery-script", shown(o.discovery_script, o.discovery_script.value)},
      {"slots-per-host", shown(o.slots_per_host, std::to_string(o.slots_per_host.value))},
      {"launch-agent", shown(o.launch_agent, o.launch_agent.given() ? o.launch_agent.value : "ssh")},
      {"separate-hosts", shown(o.separate_hosts, yes_or_no(o.separate_hosts.value))},
      {"ranks-per-host", shown(o.ranks_per_host, count_or_nothing(o.ranks_per_host.value))},
      {"oversubscribe", shown(o.oversubscribe, yes_or_no(o.oversubscribe.value))},
      {"map-by", shown(o.map_by, std::string(name_of(o.map_by.value)))},
      {"bind-to", shown(o.bind_to, std::string(name_of(o.bind_to.value)))},
      {"report-bindings", shown(o.report_bindings, yes_or_no(o.report_bindings.value))},
      {"export", shown(o.forward, in_words(o.forward.value))},
      {"wdir", shown(o.wdir, o.wdir.value)},
      {"compat-env", shown(o.compat_env, in_words(o.compat_env.value))},
      {"provide", shown(o.provide, in_words(o.provide.value))},
      {"servers", shown(o.servers, count_or_nothing(o.servers.value))},
      {"tag-output", shown(o.tag_output, yes_or_no(o.tag_output.value))},
      {"quiet", shown(o.quiet, yes_or_no(o.quiet.value))},
      {"stdin", shown(o.input_rank, o.input_rank.value == kNoRank ? "none" : std::to_string(o.input_rank.value))},
      {"min-np", shown(o.min_ranks, count_or_nothing(o.min_ranks.value))},
      {"max-np", shown(o.max_ranks, count_or_nothing(o.max_ranks.value))},
      {"reset-limit",
       shown(o.reset_limit, o.reset_limit.value == kNoLimit ? "none" : std::to_string(o.reset_limit.value))},
      {"blacklist-cooldown-range", shown(o.cooldown, fmt::format("{} {}", in_seconds(o.cooldown.value.first),
                                                                 in_seconds(o.cooldown.value.longest)))},
      {"elastic-timeout", shown(o.elastic_timeout, in_seconds(o.elastic_timeout.value))},
      {"timeout", shown(o.timeout, o.timeout.value == Duration::zero() ? "none" : in_seconds(o.timeout.value))},
      {"kill-grace", shown(o.kill_grace, in_seconds(o.kill_grace.value))},
      {"isolate", shown(o.isolate, yes_or_no(o.isolate.value))},
  };
}

}  // namespace

std::string describe_options(const Options& options) {
  std::string text;
  for (const auto& [name, value] : all_values(options)) {
    if (value.source == Source::kDefault && value.value.empty())
      continue;  // not given, and there is no default to name
    const std::string origin = value.source == Source::kAllocation ? options.allocation
                               : value.source == Source::kFlag     ? "command line"
                                                                   : "default";
    text += fmt::format("  {:<18} {:<24} {}\n", spelled(name), value.value, origin);
  }
  return text;
}

std::string help_text() {
  std::string text =
      "usage: aiaccrun [OPTIONS] PROGRAM [ARGUMENTS]\n"
      "Starts the ranks of a job on one host or several, binds them, and ends with the first\n"
      "failure's exit code. Options may have one dash or two; they end where the program begins.\n"
      "Those of mpirun, horovodrun and torchrun are understood or answered (man aiaccrun).\n";
  text += options_help(option_table());
  text +=
      "\nExit codes: that of the first rank to fail, 128 + N for signal N; 2 usage, 124 timeout,\n"
      "125 launcher, 126 not executable, 127 not found. More: man aiaccrun, man aiacc-env.\n";
  return text;
}

std::string version_text() {
  return fmt::format("aiaccrun (aiacc) {}.{}.{}\n", AIACC_VERSION_MAJOR, AIACC_VERSION_MINOR, AIACC_VERSION_PATCH);
}

}  // namespace aiacc::launcher

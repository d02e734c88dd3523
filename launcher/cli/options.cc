#include "launcher/cli/options.h"

#include <fmt/format.h>

#include <utility>

#include "launcher/cli/host_list.h"
#include "launcher/cli/mpirun.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/options_table.h"
#include "launcher/cli/split.h"

namespace aiacc::launcher {

namespace {

// Reads values by the table's names, under the spelling that the user chose.
class Reader {
 public:
  explicit Reader(const CommandLine& line) try : values_(option_table(), line) {
  } catch (const OptionError& error) {
    throw usage_error(error);
  }

  void read(const char* name, Setting<bool>& setting) const {
    if (values_.flag(name)) setting = {true, Source::kFlag};
  }

  template <typename T>
  void read(const char* name, Setting<T>& setting, T (*parse)(std::string_view, std::string_view)) const {
    if (values_.given(name)) setting = {parse(values_.typed(name), values_.text(name)), Source::kFlag};
  }

  template <typename T>
  void read_pair(const char* name, Setting<T>& setting,
                 T (*parse)(std::string_view, std::string_view, std::string_view)) const {
    if (!values_.given(name)) return;
    setting = {parse(values_.typed(name), values_.text(name), values_.second(name)), Source::kFlag};
  }

  void read_text(const char* name, Setting<std::string>& setting) const {
    if (values_.given(name)) setting = {values_.text(name), Source::kFlag};
  }

  template <typename Visit>
  void each(const char* name, Visit visit) const {
    for (const std::string& text : values_.texts(name)) visit(values_.typed(name), text);
  }

 private:
  OptionValues values_;
};

void check_hosts(const Options& options) {
  const bool script = options.discovery_script.given();
  if (options.hosts.given() && options.host_file.given()) {
    throw UsageError(MessageId::kUsage, "--host and --hostfile both name the hosts; give one of them");
  }
  if (script && (options.hosts.given() || options.host_file.given())) {
    throw UsageError(MessageId::kUsage,
                     fmt::format("--host-discovery-script and {} both name the hosts; give one of them",
                                 options.hosts.given() ? "--host" : "--hostfile"));
  }
  for (const auto& [given, name] : {std::pair(options.slots_per_host.given(), "--slots-per-host"),
                                    std::pair(options.cooldown.given(), "--blacklist-cooldown-range"),
                                    std::pair(options.elastic_timeout.given(), "--elastic-timeout")}) {
    if (!given || script) continue;
    throw UsageError(MessageId::kUsage, fmt::format("{} is given without --host-discovery-script, so that the job's "
                                                    "hosts do not change",
                                                    name));
  }
}

// With a discovery script -np is what --min-np is by default, and --max-np may be left out.
void check_elastic(Options& options) {
  if (options.discovery_script.given()) {
    if (!options.min_ranks.given() && !options.ranks.given()) {
      throw UsageError(MessageId::kRanks, "how many ranks at least? give --min-np N beside --host-discovery-script");
    }
    if (!options.min_ranks.given()) options.min_ranks.value = options.ranks.value;
    if (!options.max_ranks.given()) options.max_ranks.value = kMostRanks;
    if (options.max_ranks.value < options.min_ranks.value) {
      throw UsageError(MessageId::kRanks,
                       fmt::format("--max-np is {}, and the job needs {} rank{} (--min-np)", options.max_ranks.value,
                                   options.min_ranks.value, options.min_ranks.value == 1 ? "" : "s"));
    }
    return;
  }
  if (options.max_ranks.given() && !options.min_ranks.given()) {
    throw UsageError(MessageId::kUsage,
                     "--max-np is given without --min-np; say with how many ranks the job still goes on");
  }
  if (options.reset_limit.given() && !options.max_ranks.given()) {
    throw UsageError(MessageId::kUsage, "--reset-limit is given without --max-np, so that no rank would be replaced");
  }
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Translated translated = translate_mpirun_options(split_command_line(arguments));
  const CommandLine& split = translated.line;
  const Reader reader(split);
  Options options;
  options.ignored = std::move(translated.remarks);

  reader.read("np", options.ranks, parse_count);
  reader.each("host", [&](std::string_view typed, std::string_view text) {
    const std::vector<HostSpec> more = parse_hosts(typed, text);
    options.hosts.value.insert(options.hosts.value.end(), more.begin(), more.end());
    options.hosts.source = Source::kFlag;
  });
  reader.read_text("hostfile", options.host_file);
  reader.read_text("launch-agent", options.launch_agent);
  reader.read("separate-hosts", options.separate_hosts);
  reader.read("ranks-per-host", options.ranks_per_host, parse_count);
  reader.read("oversubscribe", options.oversubscribe);
  reader.read("map-by", options.map_by, parse_map_by);
  reader.read("bind-to", options.bind_to, parse_bind_to);
  reader.read("report-bindings", options.report_bindings);
  reader.each("export", [&](std::string_view typed, std::string_view text) {
    options.forward.value.push_back(parse_forward(typed, text));
    options.forward.source = Source::kFlag;
  });
  reader.read_text("wdir", options.wdir);
  reader.read("compat-env", options.compat_env, parse_compat_env);
  reader.read("provide", options.provide, parse_provide);
  reader.read("servers", options.servers, parse_count);
  reader.read("tag-output", options.tag_output);
  reader.read("quiet", options.quiet);
  reader.read("stdin", options.input_rank, parse_input_rank);
  reader.read("min-np", options.min_ranks, parse_count);
  reader.read("max-np", options.max_ranks, parse_count);
  options.reset_limit.value = kNoLimit;
  reader.read("reset-limit", options.reset_limit, parse_limit);
  reader.read_text("host-discovery-script", options.discovery_script);
  options.slots_per_host.value = 1;
  reader.read("slots-per-host", options.slots_per_host, parse_count);
  reader.read_pair("blacklist-cooldown-range", options.cooldown, parse_cooldown);
  options.elastic_timeout.value = std::chrono::seconds(600);
  reader.read("elastic-timeout", options.elastic_timeout, parse_seconds);
  reader.read("timeout", options.timeout, parse_seconds);
  options.kill_grace.value = std::chrono::seconds(30);
  reader.read("kill-grace", options.kill_grace, parse_seconds);
  reader.read("isolate", options.isolate);
  reader.read("dry-run", options.dry_run);

  Setting<bool> asked;
  reader.read("version", asked);
  if (asked.value) options.action = Options::Action::kVersion;
  asked = {};
  reader.read("help", asked);
  if (asked.value) options.action = Options::Action::kHelp;

  options.command = split.words;
  if (options.action != Options::Action::kRun) return options;
  check_hosts(options);
  check_elastic(options);
  if (options.command.empty()) {
    throw UsageError(MessageId::kUsage,
                     "no program to start; write aiaccrun -np N PROGRAM [ARGUMENTS] (see aiaccrun --help)");
  }
  if (options.command.front().empty()) {
    throw UsageError(MessageId::kUsage, "the name of the program to start is empty");
  }
  return options;
}

Options parse_options(int argc, const char* const* argv) {
  return parse_options(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}

}  // namespace aiacc::launcher

#include "launcher/options.h"

#include <fmt/format.h>

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/variables_map.hpp>
#include <set>

#include "launcher/host_list.h"
#include "launcher/option_values.h"
#include "launcher/options_table.h"
#include "launcher/split.h"

namespace aiacc::launcher {

namespace {

namespace po = boost::program_options;
using Texts = std::vector<std::string>;

po::options_description describe_for_boost() {
  po::options_description description;
  for (const OptionRow& row : option_table()) {
    const std::string name(row.name);
    if (row.argument.empty()) {
      description.add_options()(name.c_str(), po::bool_switch());
    } else if (row.repeatable) {
      description.add_options()(name.c_str(), po::value<Texts>()->composing());
    } else {
      description.add_options()(name.c_str(), po::value<std::string>());
    }
  }
  return description;
}

// The options once more, each in the one form that Boost is to see.
Texts in_long_form(const std::vector<GivenOption>& options) {
  Texts words;
  std::set<const OptionRow*> switches;
  for (const GivenOption& option : options) {
    if (!option.row->argument.empty()) {
      words.push_back(fmt::format("--{}={}", option.row->name, option.value));
    } else if (switches.insert(option.row).second) {  // a switch given twice is on
      words.push_back(fmt::format("--{}", option.row->name));
    }
  }
  return words;
}

po::variables_map read_with_boost(const std::vector<GivenOption>& options) {
  po::variables_map map;
  const po::options_description description = describe_for_boost();
  try {
    const int style = po::command_line_style::allow_long | po::command_line_style::long_allow_adjacent;
    po::store(po::command_line_parser(in_long_form(options)).options(description).style(style).run(), map);
  } catch (const po::multiple_occurrences& error) {
    std::string name = error.get_option_name();
    name.erase(0, name.find_first_not_of('-'));
    throw UsageError(MessageId::kOption, fmt::format("{} is given twice; give it once", spelled(name)));
  } catch (const po::error& error) {
    throw Error(Code::kInternal,
                fmt::format("the option parser refused what the splitter let through: {}", error.what()));
  }
  return map;
}

// Reads values out of Boost's map by the table's names, under the spelling that the user chose.
class Reader {
 public:
  explicit Reader(const std::vector<GivenOption>& options) : options_(options), map_(read_with_boost(options)) {}

  void read(const char* name, Setting<bool>& setting) const {
    if (map_[name].as<bool>()) setting = {true, Source::kFlag};
  }

  template <typename T>
  void read(const char* name, Setting<T>& setting, T (*parse)(std::string_view, std::string_view)) const {
    if (map_.count(name) != 0) setting = {parse(typed(name), map_[name].as<std::string>()), Source::kFlag};
  }

  void read_text(const char* name, Setting<std::string>& setting) const {
    if (map_.count(name) != 0) setting = {map_[name].as<std::string>(), Source::kFlag};
  }

  template <typename Visit>
  void each(const char* name, Visit visit) const {
    if (map_.count(name) == 0) return;
    for (const std::string& text : map_[name].as<Texts>()) visit(typed(name), text);
  }

 private:
  std::string_view typed(std::string_view name) const {
    for (const GivenOption& option : options_) {
      if (option.row->name == name) return option.typed;
    }
    return name;
  }

  const std::vector<GivenOption>& options_;
  po::variables_map map_;
};

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  const SplitCommandLine split = split_command_line(arguments);
  const Reader reader(split.options);
  Options options;

  reader.read("np", options.ranks, parse_count);
  reader.each("host", [&](std::string_view typed, std::string_view text) {
    const std::vector<HostSpec> more = parse_hosts(typed, text);
    options.hosts.value.insert(options.hosts.value.end(), more.begin(), more.end());
    options.hosts.source = Source::kFlag;
  });
  reader.read_text("hostfile", options.host_file);
  reader.read_text("launch-agent", options.launch_agent);
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
  reader.read("tag-output", options.tag_output);
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

  options.command = split.command;
  if (options.action != Options::Action::kRun) return options;
  if (options.hosts.given() && options.host_file.given()) {
    throw UsageError(MessageId::kUsage, "--host and --hostfile both name the hosts; give one of them");
  }
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

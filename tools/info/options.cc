#include "tools/info/options.h"

#include <fmt/format.h>

#include <array>

#include "base/options/command_line.h"

namespace aiacc::tools {

namespace {

constexpr std::array kTable = {
    OptionRow{"What to print", "doctor", "", "", "no", false, "0.1.0",
              "Only what will hurt a job on this host, each with one cure; the exit code is 1 if there is anything."},
    OptionRow{"What to print", "qos", "", "", "no", false, "0.1.0",
              "Only the traffic classes between hosts: their marks, shares and rates, what this host does not grant of "
              "them, and the queueing disciplines of its devices."},
    OptionRow{"What to print", "json", "", "", "no", false, "0.1.0",
              "One line of JSON, as aiacc_info(3) gives it; with --doctor or --qos that part of it."},
    OptionRow{"Information", "version", "V", "", "no", false, "0.1.0", "Print the version and exit."},
    OptionRow{"Information", "help", "h", "", "no", false, "0.1.0", "Print this text and exit."},
};

}  // namespace

OptionTable info_option_table() noexcept { return kTable; }

InfoOptions parse_info_options(const std::vector<std::string>& arguments) {
  const CommandLine line = split_command_line(kTable, "aiacc-info", arguments);
  const OptionValues values(kTable, line);
  if (!line.words.empty()) {
    throw OptionError(OptionError::Kind::kOption,
                      fmt::format("'{}' is not an option, and there is nothing else to give (see aiacc-info --help)",
                                  line.words.front()));
  }
  InfoOptions options;
  options.json = values.flag("json");
  if (values.flag("doctor")) options.action = InfoOptions::Action::kDoctor;
  if (values.flag("qos")) {
    if (options.action == InfoOptions::Action::kDoctor) {
      throw OptionError(OptionError::Kind::kOption, "--doctor and --qos print different parts: give one of them");
    }
    options.action = InfoOptions::Action::kQos;
  }
  if (values.flag("version")) options.action = InfoOptions::Action::kVersion;
  if (values.flag("help")) options.action = InfoOptions::Action::kHelp;
  return options;
}

std::string info_help() {
  return "usage: aiacc-info [OPTIONS]\n"
         "Tells what aiacc finds on this host: topology, network devices, transports, settings, limits.\n" +
         options_help(kTable) +
         "\nExit codes: 0, 1 when --doctor found something that will hurt, 2 usage, 3 no report.\n"
         "More: man aiacc-info.\n";
}

}  // namespace aiacc::tools

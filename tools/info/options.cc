#include "tools/info/options.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>

#include "base/options/command_line.h"
#include "base/quantity.h"

namespace aiacc::tools {

namespace {

constexpr std::array kTable = {
    OptionRow{"What to print", "doctor", "", "", "no", false, "0.1.0",
              "Only what will hurt a job on this host, each with one cure; the exit code is 1 if there is anything."},
    OptionRow{"What to print", "qos", "", "", "no", false, "0.1.0",
              "Only the traffic classes between hosts: their marks, shares and rates, what this host does not grant of "
              "them, and the queueing disciplines of its devices."},
    OptionRow{
        "What to print", "algorithms", "", "", "no", false, "0.1.0",
        "Only the algorithms between hosts: which one is chosen for which length and why, and which cannot serve."},
    OptionRow{"What to print", "hosts", "", "N", "4", false, "0.1.0", "With --algorithms: between so many hosts."},
    OptionRow{"What to print", "ranks", "", "N", "", false, "0.1.0",
              "With --algorithms: with so many ranks on them together; one on each by default."},
    OptionRow{"What to print", "bytes", "", "SIZE", "", false, "0.1.0",
              "With --algorithms: for this length between hosts, of one rank's block in alltoall, gather and scatter, "
              "with the predicted time of each."},
    OptionRow{"What to print", "json", "", "", "no", false, "0.1.0",
              "One line of JSON, as aiacc_info(3) gives it; with --doctor, --qos or --algorithms that part."},
    OptionRow{"Information", "version", "V", "", "no", false, "0.1.0", "Print the version and exit."},
    OptionRow{"Information", "help", "h", "", "no", false, "0.1.0", "Print this text and exit."},
};

[[noreturn]] void refuse(std::string sentence) { throw OptionError(OptionError::Kind::kValue, std::move(sentence)); }

int read_count(const OptionValues& values, const char* name, int lowest, int fallback) {
  if (!values.given(name)) return fallback;
  constexpr int kMost = 1 << 20;
  const std::optional<std::int64_t> count = parse_integer(values.text(name));
  if (!count || *count < lowest || *count > kMost) {
    refuse(fmt::format("--{} takes a whole number from {} to {}, not '{}'", name, lowest, kMost, values.text(name)));
  }
  return static_cast<int>(*count);
}

void read_shape(const OptionValues& values, InfoOptions& options) {
  for (const char* name : {"hosts", "ranks", "bytes"}) {
    if (values.given(name) && options.action != InfoOptions::Action::kAlgorithms) {
      refuse(fmt::format("--{} goes with --algorithms", name));
    }
  }
  options.hosts = read_count(values, "hosts", 2, options.hosts);
  options.ranks = read_count(values, "ranks", options.hosts, options.hosts);
  if (!values.given("bytes")) return;
  const std::optional<std::uint64_t> bytes = parse_bytes(values.text("bytes"));
  if (!bytes || *bytes == 0 || *bytes > std::uint64_t{1} << 40) {
    refuse(fmt::format("--bytes takes a size from 1 to 1T, such as 64K, not '{}'", values.text("bytes")));
  }
  options.bytes = *bytes;
}

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
  constexpr std::array kParts = {std::pair{"doctor", InfoOptions::Action::kDoctor},
                                 std::pair{"qos", InfoOptions::Action::kQos},
                                 std::pair{"algorithms", InfoOptions::Action::kAlgorithms}};
  const char* part = nullptr;
  for (const auto& [name, action] : kParts) {
    if (!values.flag(name)) continue;
    if (part != nullptr) {
      throw OptionError(OptionError::Kind::kOption,
                        fmt::format("--{} and --{} print different parts: give one of them", part, name));
    }
    part = name;
    options.action = action;
  }
  read_shape(values, options);
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

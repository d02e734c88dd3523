#include "tools/tune/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/options/command_line.h"
#include "base/quantity.h"
#include "collectives/inter/algorithms.h"

namespace aiacc::tools {

namespace {

constexpr std::string_view kWhat = "What is measured";
constexpr std::string_view kHow = "How it is measured";
constexpr std::string_view kInformation = "Information";
constexpr const char* kSince = "0.1.0";

constexpr std::array kTable = {
    OptionRow{kWhat, "minbytes", "b", "SIZE", "64", false, kSince, "Smallest size."},
    OptionRow{kWhat, "maxbytes", "e", "SIZE", "16M", false, kSince, "Largest size, of all blocks together."},
    OptionRow{kWhat, "stepfactor", "f", "N", "4", false, kSince, "Multiply the size by N, 2 to 1024, from row to row."},
    OptionRow{kWhat, "collectives", "c", "LIST", "all", false, kSince,
              "Those to measure, separated by commas, of those that have several algorithms."},
    OptionRow{kWhat, "hosts", "", "LIST", "all", false, kSince,
              "Numbers of hosts to measure, as in 2,4: the first so many of the job."},
    OptionRow{kHow, "rounds", "r", "N", "5", false, kSince,
              "How often each algorithm is measured, in turn with the others."},
    OptionRow{kHow, "time", "t", "MS", "10", false, kSince,
              "Milliseconds that the calls of one measurement take together."},
    OptionRow{kInformation, "version", "V", "", "no", false, kSince, "Print the version and exit."},
    OptionRow{kInformation, "help", "h", "", "no", false, kSince, "Print this text and exit."},
};

[[noreturn]] void refuse(std::string sentence) { throw OptionError(OptionError::Kind::kValue, std::move(sentence)); }

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

class TuneReader {
 public:
  explicit TuneReader(const CommandLine& line) : values_(kTable, line) {}

  bool flag(const char* name) const { return values_.flag(name); }
  void read_bytes(const char* name, std::uint64_t& into) const {
    if (!values_.given(name)) return;
    const std::optional<std::uint64_t> bytes = parse_bytes(values_.text(name));
    if (!bytes || *bytes < 4 || *bytes > std::uint64_t{1} << 32) bad(name, "a size from 4 to 4G, such as 4096 or 64K");
    into = *bytes;
  }
  void read_count(const char* name, int lowest, int highest, int& into) const {
    if (!values_.given(name)) return;
    into = count(name, values_.text(name), lowest, highest);
  }
  void read_hosts(std::vector<int>& into) const {
    if (!values_.given("hosts") || values_.text("hosts") == "all") return;
    for (const std::string& part : parts_of(values_.text("hosts"))) into.push_back(count("hosts", part, 2, 1 << 20));
  }
  void read_collectives(std::vector<aiacc::Collective>& into) const {
    std::vector<std::string_view> names;
    for (const inter::NamedCollective& each : inter::named_collectives()) {
      if (inter::algorithms_of(each.kind).size() < 2) continue;
      names.push_back(each.name);
      into.push_back(each.kind);
    }
    if (!values_.given("collectives") || values_.text("collectives") == "all") return;
    const std::vector<aiacc::Collective> all = std::exchange(into, {});
    for (const std::string& part : parts_of(values_.text("collectives"))) {
      const auto found = std::find(names.begin(), names.end(), part);
      if (found == names.end()) {
        refuse(fmt::format("{} takes {}, not '{}'", values_.typed("collectives"), fmt::join(names, ", "), part));
      }
      into.push_back(all[static_cast<std::size_t>(found - names.begin())]);
    }
  }

 private:
  int count(const char* name, const std::string& text, int lowest, int highest) const {
    const std::optional<std::int64_t> value = parse_integer(text);
    if (!value || *value < lowest || *value > highest) {
      refuse(fmt::format("{} takes whole numbers from {} to {}, not '{}'", values_.typed(name), lowest, highest, text));
    }
    return static_cast<int>(*value);
  }
  [[noreturn]] void bad(const char* name, std::string_view wanted) const {
    refuse(fmt::format("{} takes {}, not '{}'", values_.typed(name), wanted, values_.text(name)));
  }
  OptionValues values_;
};

}  // namespace

TuneOptions parse_tune_options(const std::vector<std::string>& arguments) {
  const CommandLine line = split_command_line(kTable, "aiacc-tune", arguments);
  const TuneReader reader(line);
  TuneOptions options;
  reader.read_bytes("minbytes", options.first_bytes);
  reader.read_bytes("maxbytes", options.last_bytes);
  reader.read_count("stepfactor", 2, 1024, options.factor);
  reader.read_count("rounds", 1, 1000, options.rounds);
  reader.read_count("time", 1, 60'000, options.time_ms);
  reader.read_hosts(options.hosts);
  reader.read_collectives(options.collectives);
  if (options.first_bytes > options.last_bytes) {
    refuse(fmt::format("the smallest size, {}, is above the largest, {}", text_of_bytes(options.first_bytes),
                       text_of_bytes(options.last_bytes)));
  }
  if (reader.flag("version")) options.action = TuneOptions::Action::kVersion;
  if (reader.flag("help")) options.action = TuneOptions::Action::kHelp;
  if (options.action != TuneOptions::Action::kMeasure) return options;
  if (line.words.size() != 1) {
    refuse(line.words.empty() ? "give the FILE to write (see aiacc-tune --help)"
                              : fmt::format("there is one FILE to write, and '{}' comes after it; options come before",
                                            line.words[1]));
  }
  options.file = line.words.front();
  return options;
}

std::string tune_help() {
  return "usage: aiaccrun [OPTIONS] aiacc-tune [OPTIONS] FILE\n"
         "Measures the algorithms between the hosts of a job, and writes to FILE which one is the fastest where, for\n"
         "AIACC_ALGORITHM_TABLE=FILE.\n" +
         options_help(kTable) + "\nExit codes: 0, 2 usage, 3 failure.\nMore: man aiacc-tune.\n";
}

}  // namespace aiacc::tools

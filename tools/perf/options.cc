#include "tools/perf/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/nearest.h"
#include "base/options/command_line.h"
#include "base/quantity.h"
#include "tools/perf/types.h"
#include "tools/perf/user_op.h"

namespace aiacc::tools {

namespace {

constexpr std::string_view kSizes = "Sizes";
constexpr std::string_view kWhat = "What is called";
constexpr std::string_view kHow = "How it is measured";
constexpr std::string_view kOutput = "Output";
constexpr std::string_view kInformation = "Information";
constexpr const char* kSince = "0.1.0";

constexpr std::array kTable = {
    OptionRow{kSizes, "minbytes", "b", "SIZE", "8", false, kSince, "Smallest size."},
    OptionRow{kSizes, "maxbytes", "e", "SIZE", "64M", false, kSince, "Largest size."},
    OptionRow{kSizes, "stepfactor", "f", "N", "2", false, kSince, "Multiply the size by N from row to row."},
    OptionRow{kSizes, "stepbytes", "i", "SIZE", "", false, kSince, "Add SIZE from row to row instead."},

    OptionRow{kWhat, "op", "o", "OP", "sum", false, kSince,
              "Operator: sum, avg, prod, min, max, band, bor, bxor or all; user: one made by aiacc_op_create."},
    OptionRow{kWhat, "datatype", "d", "TYPE", "float", false, kSince,
              "Element type: int8, uint8, int16, uint16, int32, uint32, int64, uint64, half, bfloat16, float, double, "
              "bool or all."},
    OptionRow{kWhat, "root", "r", "RANK", "0", false, kSince, "Root of broadcast, reduce, gather and scatter."},
    OptionRow{kWhat, "place", "", "WHERE", "both", false, kSince, "out (of place), in (place) or both."},

    OptionRow{
        kWhat, "classes", "", "", "no", false, kSince,
        "In place of collectives: short allreduces (-b, 8K) in the traffic class of latency beside long ones (-e, "
        "4M) in that of bulk, each alone and then both at once."},

    OptionRow{kHow, "iters", "n", "N", "auto", false, kSince,
              "Calls of each size that are timed; auto: as many as take a tenth of a second, from 10 to 2000."},
    OptionRow{kHow, "warmup-iters", "w", "N", "5", false, kSince, "Calls before them that are not."},
    OptionRow{kHow, "check", "c", "0|1", "1", false, kSince,
              "Compare the result of one more call with what it must be."},
    OptionRow{kHow, "memory", "", "KIND", "shared", false, kSince,
              "Buffers from aiacc_mem_alloc (shared) or of the process alone (private)."},
    OptionRow{kHow, "buffers", "", "KIND", "hot", false, kSince,
              "The same buffers in each call (hot), or in turn parts of more memory than the caches hold (cold)."},
    OptionRow{kHow, "bound", "", "0|1", "1", false, kSince,
              "Measure the memory first, and show how much of its bandwidth was used."},

    OptionRow{kOutput, "json", "", "", "no", false, kSince, "Print JSON, one object a line, instead of the table."},
    OptionRow{kOutput, "plot", "", "FILE", "", false, kSince, "Also draw bandwidth over size into FILE, as SVG."},

    OptionRow{kInformation, "version", "V", "", "no", false, kSince, "Print the version and exit."},
    OptionRow{kInformation, "help", "h", "", "no", false, kSince, "Print this text and exit."},
};

[[noreturn]] void refuse(std::string sentence) { throw OptionError(OptionError::Kind::kValue, std::move(sentence)); }

// As in nccl-tests, the words may come before the options and between them.
CommandLine read_words_anywhere(const std::vector<std::string>& arguments) {
  CommandLine all;
  std::vector<std::string> rest = arguments;
  while (!rest.empty()) {
    const auto option =
        std::find_if(rest.begin(), rest.end(), [](const std::string& word) { return word.starts_with('-'); });
    all.words.insert(all.words.end(), rest.begin(), option);
    CommandLine part = split_command_line(kTable, "aiacc-perf", {option, rest.end()});
    all.options.insert(all.options.end(), part.options.begin(), part.options.end());
    rest = std::move(part.words);
  }
  return all;
}

class Reader {
 public:
  explicit Reader(const CommandLine& line) : values_(kTable, line) {}

  bool flag(const char* name) const { return values_.flag(name); }
  bool is(const char* name, std::string_view text) const { return values_.given(name) && values_.text(name) == text; }
  void read_text(const char* name, std::string& into) const {
    if (values_.given(name)) into = values_.text(name);
  }
  void read_bytes(const char* name, std::uint64_t& into) const {
    if (!values_.given(name)) return;
    const std::optional<std::uint64_t> bytes = parse_bytes(values_.text(name));
    if (!bytes || *bytes == 0 || *bytes > std::uint64_t{1} << 50)
      bad(name, "a size from 1 to 1024T, such as 4096, 64K or 1G");
    into = *bytes;
  }
  void read_count(const char* name, int lowest, int highest, int& into) const {
    if (!values_.given(name)) return;
    const std::optional<std::int64_t> value = parse_integer(values_.text(name));
    if (!value || *value < lowest || *value > highest)
      bad(name, fmt::format("a whole number from {} to {}", lowest, highest));
    into = static_cast<int>(*value);
  }
  void read_switch(const char* name, bool& into) const {
    int value = into ? 1 : 0;
    read_count(name, 0, 1, value);
    into = value != 0;
  }
  void read_factor(const char* name, double& into) const {
    if (!values_.given(name)) return;
    const std::string& text = values_.text(name);
    const auto read = std::from_chars(text.data(), text.data() + text.size(), into);
    if (read.ec != std::errc{} || read.ptr != text.data() + text.size() || !(into > 1) || into > 1e6) {
      bad(name, "a factor above 1, such as 2 or 1.5");
    }
  }
  // The index of the word in `names`.
  std::size_t read_choice(const char* name, std::vector<std::string_view> names, std::size_t standard) const {
    if (!values_.given(name)) return standard;
    const std::string& text = values_.text(name);
    const auto found = std::find(names.begin(), names.end(), text);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
    refuse(fmt::format("{} does not take '{}'{} (see aiacc-perf --help)", values_.typed(name), text,
                       if_near(text, names, "; the nearest is ")));
  }

 private:
  [[noreturn]] void bad(const char* name, std::string_view wanted) const {
    refuse(fmt::format("{} takes {}, not '{}'", values_.typed(name), wanted, values_.text(name)));
  }
  OptionValues values_;
};

void read_types_and_ops(const Reader& reader, PerfOptions& options) {
  std::vector<std::string_view> names;
  for (const TypeName& one : type_names()) names.push_back(one.name);
  names.emplace_back("all");
  const std::size_t type = reader.read_choice("datatype", names, 10);
  options.types.clear();
  for (const TypeName& one : type_names()) {
    if (type == type_names().size() || one.name == names[type]) options.types.push_back(one.type);
  }
  names.clear();
  for (const OpName& one : op_names()) names.push_back(one.name);
  names.emplace_back("all");
  const std::size_t op = reader.read_choice("op", names, 0);
  options.ops.clear();
  for (const OpName& one : op_names()) {
    const bool of_all = op == op_names().size() && one.op != kUserOp;
    if (of_all || one.name == names[op]) options.ops.push_back(one.op);
  }
  options.all_pairs = options.types.size() > 1 || options.ops.size() > 1;
  if (!options.all_pairs && !supports(options.ops[0], options.types[0])) {
    refuse(fmt::format("{} is bitwise and does not take {}: integers and bool have bits to combine",
                       name_of(options.ops[0]), name_of(options.types[0])));
  }
}

void read_collectives(const std::vector<std::string>& words, PerfOptions& options) {
  std::vector<std::string_view> names;
  for (const Collective& one : collectives()) names.push_back(one.name);
  names.emplace_back("all");
  for (const std::string& word : words) {
    const Collective* found = find_collective(word);
    if (found != nullptr) {
      options.collectives.push_back(found);
    } else if (word == "all") {
      for (const Collective& one : collectives()) options.collectives.push_back(&one);
    } else {
      throw OptionError(OptionError::Kind::kOption, fmt::format("there is no collective '{}'{} (see aiacc-perf --help)",
                                                                word, if_near(word, names, "; the nearest is ")));
    }
  }
  if (options.collectives.empty()) {
    throw OptionError(OptionError::Kind::kOption,
                      "no collective to measure; write aiaccrun -np N aiacc-perf allreduce (see aiacc-perf --help)");
  }
}

}  // namespace

OptionTable perf_option_table() noexcept { return kTable; }

PerfOptions parse_perf_options(const std::vector<std::string>& arguments) {
  const CommandLine line = read_words_anywhere(arguments);
  const Reader reader(line);
  PerfOptions options;
  if (reader.flag("version")) options.action = PerfOptions::Action::kVersion;
  if (reader.flag("help")) options.action = PerfOptions::Action::kHelp;
  if (options.action != PerfOptions::Action::kMeasure) return options;
  options.classes = reader.flag("classes");
  if (options.classes) {
    options.first_bytes = 8 << 10;
    options.last_bytes = 4 << 20;
  }
  reader.read_bytes("minbytes", options.first_bytes);
  reader.read_bytes("maxbytes", options.last_bytes);
  reader.read_bytes("stepbytes", options.step_bytes);
  reader.read_factor("stepfactor", options.step_factor);
  if (options.first_bytes > options.last_bytes) {
    refuse(fmt::format("the smallest size, {}, is above the largest, {}: give -b and -e in order",
                       text_of_bytes(options.first_bytes), text_of_bytes(options.last_bytes)));
  }
  read_types_and_ops(reader, options);
  reader.read_count("root", 0, 1 << 30, options.root);
  const std::size_t place = reader.read_choice("place", {"out", "in", "both"}, 2);
  options.out_of_place = place != 1;
  options.in_place = place != 0;
  if (!reader.is("iters", "auto")) reader.read_count("iters", 1, 1'000'000'000, options.calls);
  reader.read_count("warmup-iters", 0, 1'000'000, options.warmup_calls);
  reader.read_switch("check", options.check);
  options.shared_memory = reader.read_choice("memory", {"shared", "private"}, 0) == 0;
  options.cold = reader.read_choice("buffers", {"hot", "cold"}, 0) == 1;
  reader.read_switch("bound", options.bound);
  options.json = reader.flag("json");
  reader.read_text("plot", options.plot);
  if (!options.classes) {
    read_collectives(line.words, options);
  } else if (!line.words.empty()) {
    refuse(fmt::format("--classes measures allreduces; leave out '{}'", line.words.front()));
  }
  return options;
}

std::vector<std::uint64_t> PerfOptions::sizes() const {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = first_bytes; bytes <= last_bytes;) {
    sizes.push_back(bytes);
    const double next = step_bytes > 0 ? static_cast<double>(bytes) + static_cast<double>(step_bytes)
                                       : std::floor(static_cast<double>(bytes) * step_factor);
    bytes = std::max(bytes + 1, static_cast<std::uint64_t>(next));
  }
  return sizes;
}

std::string perf_help() {
  std::string names;
  for (const Collective& one : collectives()) names += fmt::format(" {}", one.name);
  return fmt::format(
      "usage: aiaccrun -np N aiacc-perf COLLECTIVE... [OPTIONS]\n"
      "       aiaccrun -np N aiacc-perf --classes [OPTIONS]\n"
      "Measures collectives between the ranks of a job, with the options and figures of nccl-tests.\n"
      "COLLECTIVE:{}, or all;\nnames of nccl-tests, such as all_reduce or all_gather_perf, mean the same.\n{}"
      "\nExit codes: 0, 1 when a result was wrong, 2 usage, 3 when a call failed. More: man aiacc-perf.\n",
      names, options_help(kTable));
}

}  // namespace aiacc::tools

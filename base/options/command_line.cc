#include "base/options/command_line.h"

#include <fmt/format.h>

#include <algorithm>

namespace aiacc {

namespace {

bool is_option_word(const std::string& word) { return word.size() >= 2 && word.front() == '-'; }

struct OptionWord {
  std::string typed;  // without "=value"
  std::string name;   // without dashes, '_' as '-'
  bool has_value = false;
  std::string value;
};

OptionWord read_option_word(const std::string& word) {
  const std::size_t equals = word.find('=');
  OptionWord read;
  read.typed = word.substr(0, equals);
  read.name = read.typed.substr(read.typed.starts_with("--") ? 2 : 1);
  std::replace(read.name.begin(), read.name.end(), '_', '-');
  if (equals != std::string::npos) {
    read.has_value = true;
    read.value = word.substr(equals + 1);
  }
  return read;
}

// A value may begin with a dash ("-np -1" is a bad number, not a missing one), but a known option or "--" is not a
// value.
bool can_be_value(OptionTable table, OptionTable others, const std::string& word) {
  if (word == "--") return false;
  if (!is_option_word(word)) return true;
  const std::string name = read_option_word(word).name;
  return find_option(table, name) == nullptr && find_option(others, name) == nullptr;
}

bool has_two_values(const OptionRow& row) { return row.argument.find(' ') != std::string_view::npos; }

}  // namespace

CommandLine split_command_line(OptionTable table, std::string_view program, const std::vector<std::string>& arguments,
                               OptionTable others) {
  using Kind = OptionError::Kind;
  CommandLine line;
  std::size_t next = 0;
  while (next < arguments.size() && is_option_word(arguments[next])) {
    const std::string& word = arguments[next++];
    if (word == "--") break;
    OptionWord read = read_option_word(word);
    const OptionRow* row = find_option(table, read.name);
    if (row == nullptr) row = find_option(others, read.name);
    if (row == nullptr) {
      const std::string near = nearest_option(table, read.name);
      throw OptionError(Kind::kOption, fmt::format("unknown option {}{}{} (see {} --help)", read.typed,
                                                   near.empty() ? "" : "; the nearest one is ", near, program));
    }
    if (row->argument.empty() && read.has_value) {
      throw OptionError(Kind::kValue,
                        fmt::format("{} is a switch and takes no value, got '{}'", read.typed, read.value));
    }
    if (!row->argument.empty() && !read.has_value) {
      if (next < arguments.size() && can_be_value(table, others, arguments[next])) read.value = arguments[next++];
    }
    if (!row->argument.empty() && read.value.empty()) {
      throw OptionError(Kind::kValue, fmt::format("{} needs a value: {} {}", read.typed, read.typed, row->argument));
    }
    std::string second;
    if (has_two_values(*row) && read.value.find('=') == std::string::npos) {
      if (next == arguments.size()) {
        throw OptionError(Kind::kValue,
                          fmt::format("{} needs two values: {} {}", read.typed, read.typed, row->argument));
      }
      second = arguments[next++];
    }
    line.options.push_back({row, std::move(read.typed), std::move(read.value), std::move(second)});
  }
  line.words.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
  return line;
}

}  // namespace aiacc

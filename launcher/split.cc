#include "launcher/split.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/failure.h"

namespace aiacc::launcher {

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

// A value may begin with a dash ("-np -1" is a bad number, not a missing one), but an option that is known, or "--", is none.
bool can_be_value(const std::string& word) {
  return word != "--" && !(is_option_word(word) && find_option(read_option_word(word).name) != nullptr);
}

}  // namespace

SplitCommandLine split_command_line(const std::vector<std::string>& arguments) {
  SplitCommandLine split;
  std::size_t next = 0;
  while (next < arguments.size() && is_option_word(arguments[next])) {
    const std::string& word = arguments[next++];
    if (word == "--") break;
    OptionWord read = read_option_word(word);
    const OptionRow* row = find_option(read.name);
    if (row == nullptr) {
      throw UsageError(MessageId::kOption, fmt::format("unknown option {}; the nearest one is {} (see aiaccrun --help)",
                                                       read.typed, nearest_option(read.name)));
    }
    if (row->argument.empty() && read.has_value) {
      throw UsageError(MessageId::kValue,
                       fmt::format("{} is a switch and takes no value, got '{}'", read.typed, read.value));
    }
    if (!row->argument.empty() && !read.has_value) {
      if (next < arguments.size() && can_be_value(arguments[next])) read.value = arguments[next++];
    }
    if (!row->argument.empty() && read.value.empty()) {
      throw UsageError(MessageId::kValue,
                       fmt::format("{} needs a value: {} {}", read.typed, read.typed, row->argument));
    }
    split.options.push_back({row, std::move(read.typed), std::move(read.value)});
  }
  split.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
  return split;
}

}  // namespace aiacc::launcher

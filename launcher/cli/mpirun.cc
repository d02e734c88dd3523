#include "launcher/cli/mpirun.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/cli/failure.h"
#include "launcher/cli/mpirun_table.h"
#include "launcher/cli/options_table.h"

namespace aiacc::launcher {

namespace {

using Effect = MpirunOption::Effect;

constexpr std::string_view kNoGpus = "aiaccrun does not count GPUs; give the number of ranks on each host (-N)";

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(), [](char c) {
    return c == '_' ? '-' : 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return small;
}

std::vector<std::string> split_at(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t at = text.find_first_of(separators);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

const MpirunValue* find_value(std::string_view option, std::string_view value) {
  const std::string wanted = in_small_letters(value);
  for (const MpirunValue& row : mpirun_values()) {
    if (row.option == option && row.value == wanted) return &row;
  }
  return nullptr;
}

class Translation {
 public:
  void add(const GivenOption& given) {
    const std::string_view name = given.row->name;
    const MpirunOption* option = find(given.row);
    if (name == "map-by" || name == "bind-to") return place(given);
    if (name == "output") return each_of_list(given);
    if (option == nullptr) return result_.line.options.push_back(given);
    if (const MpirunValue* row = find_value(name, given.value)) {
      return take_value(given, *row, given.second, shown(given));
    }
    if (name == "nproc-per-node" && in_small_letters(given.value) == "gpu") {
      throw UsageError(MessageId::kUsage, fmt::format("{} {} is refused: {}", given.typed, given.value, kNoGpus));
    }
    switch (option->effect) {
      case Effect::kMeans: return mean(given, option->text);
      case Effect::kAlready: return;
      case Effect::kNone: return ignore(shown(given), option->text);
      case Effect::kRefused:
        throw UsageError(MessageId::kUsage, fmt::format("{} is refused: {}", given.typed, option->text));
    }
  }

  Translated take(std::vector<std::string> words) {
    result_.line.words = std::move(words);
    for (const Ignored& one : ignored_) {
      result_.remarks.push_back(fmt::format("{} {} no effect: {}", fmt::join(one.what, ", "),
                                            one.what.size() == 1 ? "has" : "have", one.instead));
    }
    return std::move(result_);
  }

 private:
  struct Ignored {
    std::vector<std::string> what;
    std::string_view instead;
  };

  static const MpirunOption* find(const OptionRow* row) {
    const OptionTable table = mpirun_option_table();
    const bool foreign = row >= table.data() && row < table.data() + table.size();
    return foreign ? &mpirun_options()[static_cast<std::size_t>(row - table.data())] : nullptr;
  }

  // As the user wrote it.
  static std::string shown(const GivenOption& given) {
    std::string text = given.typed;
    for (const std::string& value : {given.value, given.second}) {
      if (!value.empty()) text += " " + value;
    }
    return text;
  }

  void mean(const GivenOption& given, std::string_view means) {
    const std::size_t equals = means.find('=');
    if (equals != std::string_view::npos) return push(given, means.substr(0, equals), means.substr(equals + 1));
    const bool list = given.row->argument.ends_with(",...") && !find_option(means)->argument.ends_with(",...");
    if (!list) {
      return push(given, means, given.second.empty() ? given.value : fmt::format("{}={}", given.value, given.second));
    }
    for (const std::string& part : split_at(given.value, ",")) push(given, means, part);
  }

  void push(const GivenOption& given, std::string_view name, std::string_view value) {
    result_.line.options.push_back({find_option(name), given.typed, std::string(value), {}});
  }

  // `what` is the part of the command line that the row is about. `value` is for an option of aiaccrun whose row gives
  // no value.
  void take_value(const GivenOption& given, const MpirunValue& row, const std::string& value, const std::string& what) {
    const std::size_t equals = row.means.find('=');
    const std::string_view name = row.means.substr(0, equals);
    if (row.means.empty()) {
      if (!row.instead.empty()) ignore(what, row.instead);
      return;
    }
    std::string own = equals == std::string_view::npos ? value : std::string(row.means.substr(equals + 1));
    if (own == kCpus) own = fmt::format("{}", ::sysconf(_SC_NPROCESSORS_ONLN));
    push(given, name, find_option(name)->argument.empty() ? "" : own);
    if (!row.instead.empty()) {
      result_.remarks.push_back(fmt::format("{} is taken for {} {}: {}", what, spelled(name), own, row.instead));
    }
  }

  void ignore(std::string what, std::string_view instead) {
    for (Ignored& one : ignored_) {
      if (one.instead == instead) return one.what.push_back(std::move(what));
    }
    ignored_.push_back({{std::move(what)}, instead});
  }

  // WHAT[:QUALIFIER[,QUALIFIER]...], and ppr:N:OBJECT[:QUALIFIER...].
  void place(const GivenOption& given) {
    std::vector<std::string> parts = split_at(given.value, ":,");
    std::string what = parts.front();
    parts.erase(parts.begin());
    if (in_small_letters(what) == "ppr" && parts.size() >= 2) {
      const std::string object = in_small_letters(parts[1]);
      push(given, "ranks-per-host", parts[0]);
      if (object != "node") {
        ignore(fmt::format("{} ppr:{}:{}", given.typed, parts[0], parts[1]),
               "ranks are counted for each host, which gets that number (-N)");
      }
      what.clear();
      parts.erase(parts.begin(), parts.begin() + 2);
    }
    if (const MpirunValue* row = what.empty() ? nullptr : find_value(given.row->name, what)) {
      const bool whole = row->means.empty() && !row->instead.empty();
      take_value(given, *row, {}, whole ? shown(given) : fmt::format("{} {}", given.typed, what));
      if (whole) return;
    } else if (!what.empty()) {
      push(given, given.row->name, parts.empty() ? what : in_small_letters(what));
    }
    for (const std::string& part : parts) {
      const MpirunValue* row = find_value("qualifier", part);
      take_value(given, row != nullptr ? *row : *find_value("qualifier", ""), {},
                 fmt::format("{} :{}", given.typed, part));
    }
  }

  void each_of_list(const GivenOption& given) {
    for (const std::string& part : split_at(given.value, ",:")) {
      const std::string what = fmt::format("{} {}", given.typed, part);
      if (const MpirunValue* row = find_value(given.row->name, part)) {
        take_value(given, *row, {}, what);
      } else {
        ignore(what, find(given.row)->text);
      }
    }
  }

  Translated result_;
  std::vector<Ignored> ignored_;
};

}  // namespace

Translated translate_mpirun_options(const CommandLine& line) {
  Translation translation;
  for (const GivenOption& given : line.options) translation.add(given);
  if (std::find(line.words.begin(), line.words.end(), ":") != line.words.end()) {
    throw UsageError(MessageId::kUsage, fmt::format("a ':' by itself begins another program: {}", several_programs()));
  }
  return translation.take(line.words);
}

}  // namespace aiacc::launcher

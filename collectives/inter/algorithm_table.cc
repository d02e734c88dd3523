#include "collectives/inter/algorithm_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/printable.h"
#include "base/quantity.h"
#include "collectives/inter/algorithms.h"

namespace aiacc::inter {
namespace {

constexpr std::string_view kPlainSums = "plain", kNarrowSums = "16-bit";

std::vector<std::string_view> table_words(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.find_first_of(" \t\r"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

class TableReader {
 public:
  explicit TableReader(std::string_view name) : name_(name) {}

  AlgorithmTable read(std::string_view text) {
    if (text.size() > AlgorithmTable::kMostBytes) {
      fail(fmt::format("it has {} bytes, more than any table of algorithms ({})", text.size(),
                       AlgorithmTable::kMostBytes));
    }
    while (!text.empty() && !ended_) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      const std::vector<std::string_view> words = table_words(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line_ == 1) {
        read_first(words);
      } else if (!words.empty() && !words.front().starts_with('#')) {
        read_line(words);
      }
    }
    if (line_ == 0) fail("it is empty");
    if (!ended_) fail("it is not whole: its last line is not 'end'");
    if (text.find_first_not_of(" \t\r\n") != std::string_view::npos) fail("there is something after the line 'end'");
    if (conditions_.transport.empty()) fail("it does not say over which transport it was measured");
    return {std::move(conditions_), std::move(choices_)};
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(Code::kInvalidArgument, fmt::format("{}: {}", name_, what));
  }
  [[noreturn]] void fail_here(std::string_view what) const { fail(fmt::format("line {}: {}", line_, what)); }

  void read_first(const std::vector<std::string_view>& words) const {
    if (words.size() != 2 || words[0] != AlgorithmTable::kFirstWord) {
      fail(fmt::format("it is not a table of algorithms: the first line of one is '{} {}'", AlgorithmTable::kFirstWord,
                       AlgorithmTable::kVersion));
    }
    if (parse_integer(words[1]) != AlgorithmTable::kVersion) {
      fail(fmt::format("it has version {}, and this build reads version {}; make it again with aiacc-tune",
                       printable(words[1]), AlgorithmTable::kVersion));
    }
  }

  void read_line(const std::vector<std::string_view>& words) {
    const std::string_view key = words.front();
    if (key == "end" && words.size() == 1) {
      ended_ = true;
    } else if (key == "measured-on") {
      conditions_.hosts.assign(words.begin() + 1, words.end());
    } else if (key == "transport" && words.size() == 2) {
      conditions_.transport = words[1];
    } else if (key == "streams" && words.size() == 2) {
      conditions_.streams = words[1];
    } else if (key == "encrypt" && words.size() == 2) {
      conditions_.encryption = words[1];
    } else {
      read_choice(words);
    }
  }

  void read_choice(const std::vector<std::string_view>& words) {
    if (words.size() != 6) {
      fail_here(fmt::format("'{}' is no line of COLLECTIVE RANKS plain|16-bit ABOVE UP-TO ALGORITHM",
                            printable(fmt::format("{}", fmt::join(words, " ")))));
    }
    AlgorithmTable::Choice choice;
    choice.ranks = static_cast<int>(number(words[1], 2, 1 << 30));
    if (words[2] != kPlainSums && words[2] != kNarrowSums) {
      fail_here(fmt::format("'{}' is neither {} nor {}", printable(words[2]), kPlainSums, kNarrowSums));
    }
    choice.narrows = words[2] == kNarrowSums;
    constexpr std::int64_t kLongest = std::int64_t{1} << 50;
    choice.above = static_cast<std::size_t>(number(words[3], 0, kLongest));
    choice.up_to = static_cast<std::size_t>(number(words[4], 0, kLongest));
    if (choice.above >= choice.up_to) fail_here(fmt::format("{} is not below {}", choice.above, choice.up_to));
    choice.algorithm = algorithm(words[0], words[5]);
    choices_.push_back(choice);
  }

  std::int64_t number(std::string_view word, std::int64_t lowest, std::int64_t highest) const {
    const std::optional<std::int64_t> value = parse_integer(word);
    if (!value || *value < lowest || *value > highest) {
      fail_here(fmt::format("'{}' is not a whole number from {} to {}", printable(word), lowest, highest));
    }
    return *value;
  }

  const AlgorithmInfo* algorithm(std::string_view collective, std::string_view word) const {
    for (const NamedCollective& each : named_collectives()) {
      if (each.name != collective) continue;
      for (const AlgorithmInfo* one : algorithms_of(each.kind)) {
        if (one->name == word) return one;
      }
      fail_here(fmt::format("{} has no algorithm '{}' in this build; make the table again with aiacc-tune", collective,
                            printable(word)));
    }
    fail_here(fmt::format("there is no collective '{}'", printable(collective)));
  }

  std::string_view name_;
  int line_ = 0;
  bool ended_ = false;
  AlgorithmTable::Conditions conditions_;
  std::vector<AlgorithmTable::Choice> choices_;
};

}  // namespace

AlgorithmTable::AlgorithmTable(Conditions conditions, std::vector<Choice> choices)
    : conditions_(std::move(conditions)), choices_(std::move(choices)) {}

AlgorithmTable AlgorithmTable::parse(std::string_view name, std::string_view text) {
  return TableReader(name).read(text);
}

// A few dozen choices of one number of ranks: a call that is sent to another host takes thousands of times longer.
const AlgorithmInfo* AlgorithmTable::find(const Shape& shape) const noexcept {
  if (shape.ordered || shape.takes_partials) return nullptr;  // never measured
  for (const Choice& choice : choices_) {
    if (choice.ranks != shape.ranks || shape.bytes <= choice.above || shape.bytes > choice.up_to) continue;
    if (choice.algorithm->kind != shape.kind || choice.narrows != shape.narrows) continue;
    return choice.algorithm->obstacle(shape).empty() ? choice.algorithm : nullptr;
  }
  return nullptr;
}

std::string AlgorithmTable::text(Extent extent) const {
  std::string text = fmt::format("{} {}\n", kFirstWord, kVersion);
  if (extent == Extent::kWhole) text += fmt::format("measured-on {}\n", fmt::join(conditions_.hosts, " "));
  text += fmt::format("transport {}\nstreams {}\nencrypt {}\n", conditions_.transport, conditions_.streams,
                      conditions_.encryption);
  for (const Choice& choice : choices_) {
    text += fmt::format("{} {} {} {} {} {}\n", name_of(choice.algorithm->kind), choice.ranks,
                        choice.narrows ? kNarrowSums : kPlainSums, choice.above, choice.up_to, choice.algorithm->name);
  }
  return text + "end\n";
}

}  // namespace aiacc::inter

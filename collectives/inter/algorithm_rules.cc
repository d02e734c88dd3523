#include "collectives/inter/algorithm_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "collectives/inter/algorithms.h"

namespace aiacc::inter {
namespace {

// The first part of `rest` up to a separator, which is removed with it.
std::string_view take_part(std::string_view& rest, char separator) noexcept {
  const std::size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

std::vector<std::string_view> names_of(Collective kind) {
  std::vector<std::string_view> names;
  for (const AlgorithmInfo* algorithm : algorithms_of(kind)) names.push_back(algorithm->name);
  return names;
}

// Throws errors that begin with the setting.
class Parser {
 public:
  Parser(std::string_view name, std::string_view text) : name_(name), text_(text) {}

  Collective collective(std::string_view word) const {
    std::vector<std::string_view> names;
    for (const NamedCollective& each : named_collectives()) {
      if (each.name == word) return each.kind;
      names.push_back(each.name);
    }
    fail(fmt::format("there is no collective '{}'{}", word, if_near(word, names, "; did you mean ", "?")));
  }

  std::uint32_t algorithms(Collective kind, std::string_view words) const {
    const bool excludes = words.starts_with('^');
    if (excludes) words.remove_prefix(1);
    std::uint32_t named = 0;
    for (bool more = true; more;) {
      more = words.find('|') != std::string_view::npos;
      named |= algorithm(kind, take_part(words, '|'));
    }
    const std::uint32_t all = (std::uint32_t{1} << algorithms_of(kind).size()) - 1;
    if (excludes && named == all) fail(fmt::format("no algorithm is left for {}", inter::name_of(kind)));
    return excludes ? all & ~named : named;
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(Code::kInvalidArgument, fmt::format("{}='{}': {}", name_, text_, what));
  }

 private:
  std::uint32_t algorithm(Collective kind, std::string_view word) const {
    const std::vector<std::string_view> names = names_of(kind);
    const auto found = std::find(names.begin(), names.end(), word);
    if (found == names.end()) {
      fail(fmt::format("{} has no algorithm '{}' between hosts; it has {}", inter::name_of(kind), word,
                       fmt::join(names, ", ")));
    }
    return std::uint32_t{1} << (found - names.begin());
  }

  std::string_view name_;
  std::string_view text_;
};

}  // namespace

AlgorithmRules AlgorithmRules::parse(std::string_view name, std::string_view text) {
  const Parser parser(name, text);
  AlgorithmRules rules;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view entry = take_part(rest, ',');
    const bool names_collective = entry.find('=') != std::string_view::npos;
    if (!names_collective) {
      parser.fail(fmt::format("'{}' is not of the form COLLECTIVE=ALGORITHM, as in allreduce=ring", entry));
    }
    const Collective kind = parser.collective(take_part(entry, '='));
    if (rules.restricts(kind)) parser.fail(fmt::format("{} is named twice", inter::name_of(kind)));
    rules.permitted_[static_cast<std::size_t>(kind)] = parser.algorithms(kind, entry);
  }
  return rules;
}

bool AlgorithmRules::permits(const AlgorithmInfo& algorithm) const noexcept {
  const auto all = algorithms_of(algorithm.kind);
  const auto index = std::find(all.begin(), all.end(), &algorithm) - all.begin();
  return (permitted(algorithm.kind) >> index & 1) != 0;
}

std::string AlgorithmRules::text() const {
  std::vector<std::string> entries;
  for (const NamedCollective& each : named_collectives()) {
    if (!restricts(each.kind)) continue;
    std::vector<std::string_view> names;
    for (const AlgorithmInfo* algorithm : algorithms_of(each.kind)) {
      if (permits(*algorithm)) names.push_back(algorithm->name);
    }
    entries.push_back(fmt::format("{}={}", each.name, fmt::join(names, "|")));
  }
  return fmt::format("{}", fmt::join(entries, ","));
}

}  // namespace aiacc::inter

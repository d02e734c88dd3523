#include "base/options/option_table.h"

#include <fmt/format.h>

#include <vector>

#include "base/nearest.h"

namespace aiacc {

namespace {

// Calls visit(name) with the long name and then each alias; stops when it returns true.
template <typename Visit>
bool any_name(const OptionRow& row, Visit visit) {
  if (visit(row.name)) return true;
  std::string_view rest = row.aliases;
  while (!rest.empty()) {
    const std::size_t blank = rest.find(' ');
    if (visit(rest.substr(0, blank))) return true;
    rest = blank == std::string_view::npos ? std::string_view{} : rest.substr(blank + 1);
  }
  return false;
}

constexpr std::size_t kHelpWidth = 80;
constexpr std::size_t kHelpIndent = 30;

// Breaks `text` between words and indents each line after the first.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::size_t blank = text.find(' ');
    const std::string_view word = text.substr(0, blank);
    text.remove_prefix(blank == std::string_view::npos ? text.size() : blank + 1);
    if (column != indent && column + 1 + word.size() > width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column != indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

}  // namespace

const OptionRow* find_option(OptionTable table, std::string_view name) noexcept {
  for (const OptionRow& row : table) {
    if (any_name(row, [&](std::string_view known) { return known == name; })) return &row;
  }
  return nullptr;
}

std::string nearest_option(OptionTable table, std::string_view name) {
  std::vector<std::string_view> names;
  for (const OptionRow& row : table) {
    any_name(row, [&](std::string_view known) {
      names.push_back(known);
      return false;
    });
  }
  const std::string_view found = nearest(name, names);
  return found.empty() ? "" : spelled(found);
}

std::string spelled(std::string_view name) { return std::string(name.size() <= 2 ? "-" : "--").append(name); }

std::string all_spellings(const OptionRow& row) {
  std::string text;
  any_name(row, [&](std::string_view name) {
    if (name != row.name) text += spelled(name) + ", ";
    return false;
  });
  return text + spelled(row.name);
}

std::string options_help(OptionTable table) {
  std::string text;
  const OptionRow* previous = nullptr;
  for (const OptionRow& row : table) {
    if (previous == nullptr || previous->group != row.group) text += fmt::format("\n{}:\n", row.group);
    previous = &row;
    std::string left = "  " + all_spellings(row);
    if (!row.argument.empty()) left += fmt::format(" {}", row.argument);
    left += left.size() + 2 > kHelpIndent ? "\n" + std::string(kHelpIndent, ' ')
                                          : std::string(kHelpIndent - left.size(), ' ');
    std::string help(row.help);
    if (!row.argument.empty() && !row.fallback.empty()) help += fmt::format(" [{}]", row.fallback);
    text += left + wrapped(help, kHelpIndent, kHelpWidth) + "\n";
  }
  return text;
}

}  // namespace aiacc

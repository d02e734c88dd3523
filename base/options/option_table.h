// A program's options as one declarative table. The parser, --help and the option list of the manual all come from it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace aiacc {

struct OptionRow {
  std::string_view group;     // its title in --help; rows of a group are consecutive
  std::string_view name;      // the long one, without dashes; unique
  std::string_view aliases;   // further names, separated by blanks
  std::string_view argument;  // the placeholder of the value; "" for a switch; two words for two values
  std::string_view fallback;  // the default value; "" if there is none to show
  bool repeatable;            // may be given several times
  std::string_view since;     // version of the program
  std::string_view help;      // one or two lines of text
};
using OptionTable = std::span<const OptionRow>;

// The row with this name or alias, dashes stripped and '_' written as '-'; null if there is none.
const OptionRow* find_option(OptionTable table, std::string_view name) noexcept;

// The known option nearest to `name`, as it is typed ("--wdir", "-np"); "" if none is near.
std::string nearest_option(OptionTable table, std::string_view name);

// The option as a user types it: one dash for names of up to two letters, as in mpirun, two for words.
std::string spelled(std::string_view name);

// Every spelling of the row, the long one last: "-n, -np".
std::string all_spellings(const OptionRow& row);

// The groups with their rows, each after an empty line, for --help.
std::string options_help(OptionTable table);

}  // namespace aiacc

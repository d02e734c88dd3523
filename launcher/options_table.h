// The table of options of aiaccrun. The parser, --help and the option list of aiaccrun(1) all come from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace aiacc::launcher {

enum class OptionGroup : std::uint8_t { kRanks, kPlacement, kEnvironment, kOutput, kLife, kInformation };

struct OptionRow {
  OptionGroup group;
  std::string_view name;      // the long one, without dashes; unique
  std::string_view aliases;   // further names, separated by blanks
  std::string_view argument;  // what stands for the value; "" for a switch
  std::string_view fallback;  // the value when the option is not given; "" if there is none to name
  bool repeatable;            // may be given several times
  std::string_view since;     // version of aiaccrun
  std::string_view help;      // one or two lines of text
};

std::span<const OptionRow> option_table() noexcept;
std::string_view title(OptionGroup group) noexcept;

// The row with this name or alias, dashes stripped and '_' written as '-'; null if there is none.
const OptionRow* find_option(std::string_view name) noexcept;

// The known option nearest to `name`, as it is typed ("--wdir", "-np").
std::string nearest_option(std::string_view name);

// As it is typed: one dash for the names of mpirun's tradition (up to two letters), two for words.
std::string spelled(std::string_view name);

// Every spelling of the row, the long one last: "-n, -np".
std::string all_spellings(const OptionRow& row);

}  // namespace aiacc::launcher

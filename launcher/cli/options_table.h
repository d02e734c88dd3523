// The table of options of aiaccrun. The parser, --help and the option list of aiaccrun(1) all come from it.
#pragma once

#include <string_view>

#include "base/options/option_table.h"

namespace aiacc::launcher {

using aiacc::all_spellings;
using aiacc::OptionRow;
using aiacc::spelled;

namespace OptionGroup {
inline constexpr std::string_view kRanks = "Ranks and hosts";
inline constexpr std::string_view kPlacement = "Placement";
inline constexpr std::string_view kEnvironment = "Environment and directory";
inline constexpr std::string_view kOutput = "Input and output";
inline constexpr std::string_view kLife = "Life of the job";
inline constexpr std::string_view kInformation = "Information";
}  // namespace OptionGroup

OptionTable option_table() noexcept;

// The row with this name or alias; null if there is none.
inline const OptionRow* find_option(std::string_view name) noexcept { return aiacc::find_option(option_table(), name); }

}  // namespace aiacc::launcher

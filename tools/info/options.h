// The options of aiacc-info.
#pragma once

#include <string>
#include <vector>

#include "base/options/option_table.h"

namespace aiacc::tools {

struct InfoOptions {
  enum class Action { kReport, kDoctor, kQos, kHelp, kVersion };
  Action action = Action::kReport;
  bool json = false;
};

OptionTable info_option_table() noexcept;

// Throws Error with the sentence.
InfoOptions parse_info_options(const std::vector<std::string>& arguments);

std::string info_help();

}  // namespace aiacc::tools

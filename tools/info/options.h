// The options of aiacc-info.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options/option_table.h"

namespace aiacc::tools {

struct InfoOptions {
  enum class Action { kReport, kDoctor, kQos, kAlgorithms, kHelp, kVersion };
  Action action = Action::kReport;
  bool json = false;
  // For kAlgorithms.
  int hosts = 4;
  int ranks = 4;            // on all hosts together, as many on each
  std::uint64_t bytes = 0;  // between hosts; 0: of any length
};

OptionTable info_option_table() noexcept;

// Throws Error with the sentence.
InfoOptions parse_info_options(const std::vector<std::string>& arguments);

std::string info_help();

}  // namespace aiacc::tools

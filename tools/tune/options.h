// The options of aiacc-tune.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options/option_table.h"
#include "collectives/operation.h"

namespace aiacc::tools {

struct TuneOptions {
  enum class Action { kMeasure, kHelp, kVersion };
  Action action = Action::kMeasure;
  std::uint64_t first_bytes = 64;
  std::uint64_t last_bytes = 16 << 20;
  int factor = 4;
  int rounds = 5;
  int time_ms = 10;                            // of the calls of one measurement
  std::vector<int> hosts;                      // how many; empty: all of the job
  std::vector<aiacc::Collective> collectives;  // those with several algorithms, or some of them
  std::string file;
};

// Throws Error with the sentence.
TuneOptions parse_tune_options(const std::vector<std::string>& arguments);

std::string tune_help();

}  // namespace aiacc::tools

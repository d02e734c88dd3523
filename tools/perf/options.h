// The options of aiacc-perf: those of nccl-tests, and its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options/option_table.h"
#include "include/aiacc/aiacc.h"
#include "tools/perf/collectives.h"

namespace aiacc::tools {

struct PerfOptions {
  enum class Action { kMeasure, kHelp, kVersion };
  Action action = Action::kMeasure;
  std::vector<const Collective*> collectives;
  std::uint64_t first_bytes = 8;
  std::uint64_t last_bytes = std::uint64_t{64} << 20;
  std::uint64_t step_bytes = 0;  // 0: sizes grow by the factor
  double step_factor = 2;
  int calls = 0;  // 0: as many as fit into a tenth of a second
  int warmup_calls = 5;
  bool check = true;
  std::vector<aiacc_op_t> ops = {AIACC_SUM};
  std::vector<aiacc_dtype_t> types = {AIACC_FLOAT32};
  bool all_pairs = false;  // all types or all operators: unsupported pairs are left out
  int root = 0;
  bool out_of_place = true;
  bool in_place = true;
  bool cold = false;
  bool shared_memory = true;
  bool bound = true;
  bool classes = false;
  bool json = false;
  std::string plot;

  // The sizes to measure, ascending.
  std::vector<std::uint64_t> sizes() const;
};

OptionTable perf_option_table() noexcept;

// Throws Error with the sentence.
PerfOptions parse_perf_options(const std::vector<std::string>& arguments);

std::string perf_help();

}  // namespace aiacc::tools

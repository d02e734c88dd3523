// Two traffic classes at once: short allreduces as latency beside long ones as bulk, each alone and then both together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/perf/options.h"
#include "tools/perf/world.h"

namespace aiacc::tools {

struct ClassTimes {
  int calls = 0;
  double p50_us = 0;  // of the calls, each on the slowest rank
  double p99_us = 0;
  double gbs = 0;  // bytes of all calls over the time of all of them
};

struct ClassRow {
  std::string name;
  std::uint64_t bytes = 0;
  ClassTimes alone;
  ClassTimes together;
  std::uint64_t wrong = 0;  // calls of this rank with a wrong result
};

// Latency, then bulk. Collective: every rank gets the same but for `wrong`, which is the sum on all ranks.
std::vector<ClassRow> measure_classes(const World& world, const PerfOptions& options);

std::string classes_text(const World& world, const std::vector<ClassRow>& rows);
std::string classes_json(const std::vector<ClassRow>& rows);  // a line for each

}  // namespace aiacc::tools

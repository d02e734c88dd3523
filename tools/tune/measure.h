// Measures algorithms between hosts. The library takes AIACC_ALGORITHM when a rank is initialised, so the job is left and
// joined again for each set of algorithms: the i-th of every collective.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/inter/algorithm_timings.h"
#include "tools/tune/options.h"

namespace aiacc::tools {

// The ranks of the job, by place; the same on all ranks.
struct TunePlace {
  int rank = 0;
  int hosts = 1;
  int most_on_a_host = 1;
  std::vector<std::string> host_names;  // by index
  std::string transport;                // on rank 0
};

// Collective over the job: joins it, has `check` look at the place, and leaves it again when all ranks have; returns the
// largest result of `check`, which is 0 for "go on". A rank that exited before rank 0 has said why would end the job first.
// Throws CallError.
int find_place(TunePlace& place, const std::function<int(const TunePlace&)>& check);

// All algorithms that can serve a shape, for each shape of `options`. Collective over the job; the same on all ranks.
// `progress` is called on all ranks.
std::vector<inter::TimedShape> measure_algorithms(const TunePlace& place, const TuneOptions& options,
                                                  const std::function<void(const std::string&)>& progress);

}  // namespace aiacc::tools

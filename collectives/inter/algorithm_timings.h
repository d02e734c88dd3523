// From the times of algorithms to a table: which one is chosen for which lengths, for aiacc-tune.
#pragma once

#include <span>
#include <vector>

#include "collectives/inter/algorithm_info.h"
#include "collectives/inter/algorithm_table.h"

namespace aiacc::inter {

struct AlgorithmTiming {
  const AlgorithmInfo* algorithm = nullptr;
  std::vector<double> rounds_us;  // of one call, measured in turn with the others
};

// All algorithms that were measured for one shape; the usual one is among them.
struct TimedShape {
  Shape shape;
  std::vector<AlgorithmTiming> timings;

  const AlgorithmTiming* find(const AlgorithmInfo& algorithm) const noexcept;
};

// 0 of no values.
double median_of(std::vector<double> values);

// The algorithm with the least median time of those that are faster than the usual one by more than the noise: 3 %, or 1.5
// times the median deviations of both, and in four of five rounds. Null: the usual one is as fast as any.
const AlgorithmInfo* faster_than_usual(const TimedShape& timed);

// The choices of a table. A measured length stands for those around it, up to half of the way (in factors) to the next one that
// could be measured with `factor` between them. Lengths for which the usual algorithm is as fast as any are left out.
std::vector<AlgorithmTable::Choice> choices_of(std::span<const TimedShape> timed, int factor);

}  // namespace aiacc::inter

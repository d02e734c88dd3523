#include "collectives/inter/algorithm_timings.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "collectives/inter/algorithms.h"

namespace aiacc::inter {
namespace {

constexpr double kLeastGain = 0.03;
constexpr double kDeviations = 1.5;
constexpr double kRoundsWon = 0.8;

double median_deviation(const std::vector<double>& values) {
  const double middle = median_of(values);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::abs(value - middle));
  return median_of(std::move(deviations));
}

bool wins_rounds(const std::vector<double>& rounds_us, const std::vector<double>& others_us) {
  std::size_t won = 0;
  for (std::size_t round = 0; round < rounds_us.size(); ++round) won += rounds_us[round] < others_us[round] ? 1 : 0;
  return static_cast<double>(won) >= kRoundsWon * static_cast<double>(rounds_us.size());
}

// Near the middle between `bytes` and `factor` times as many; a power of two if one is there, which the log names exactly.
std::size_t middle_above(std::size_t bytes, int factor) {
  const auto middle = static_cast<std::size_t>(static_cast<double>(bytes) * std::sqrt(factor));
  const std::size_t power = std::bit_floor(middle);
  return power >= bytes ? power : middle;
}

}  // namespace

const AlgorithmTiming* TimedShape::find(const AlgorithmInfo& algorithm) const noexcept {
  const auto found = std::find_if(timings.begin(), timings.end(),
                                  [&](const AlgorithmTiming& timing) { return timing.algorithm == &algorithm; });
  return found == timings.end() ? nullptr : &*found;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

const AlgorithmInfo* faster_than_usual(const TimedShape& timed) {
  const AlgorithmTiming* const usual = timed.find(usual_algorithm(timed.shape));
  if (usual == nullptr || usual->rounds_us.empty()) return nullptr;
  const double usual_us = median_of(usual->rounds_us), usual_deviation = median_deviation(usual->rounds_us);
  const AlgorithmInfo* fastest = nullptr;
  double least_us = usual_us;
  for (const AlgorithmTiming& timing : timed.timings) {
    if (timing.rounds_us.size() < usual->rounds_us.size()) continue;  // given up, because it was much slower
    const double us = median_of(timing.rounds_us);
    const double noise = kDeviations * (usual_deviation + median_deviation(timing.rounds_us));
    if (us >= least_us || usual_us - us <= std::max(kLeastGain * usual_us, noise)) continue;
    if (!wins_rounds(timing.rounds_us, usual->rounds_us)) continue;
    fastest = timing.algorithm;
    least_us = us;
  }
  return fastest;
}

std::vector<AlgorithmTable::Choice> choices_of(std::span<const TimedShape> timed, int factor) {
  std::vector<AlgorithmTable::Choice> choices;
  for (const TimedShape& each : timed) {
    const AlgorithmInfo* const fastest = faster_than_usual(each);
    if (fastest == nullptr) continue;
    const std::size_t bytes = each.shape.bytes;
    const AlgorithmTable::Choice choice{.algorithm = fastest,
                                        .ranks = each.shape.ranks,
                                        .narrows = each.shape.narrows,
                                        .above = middle_above(bytes / static_cast<std::size_t>(factor), factor),
                                        .up_to = middle_above(bytes, factor)};
    if (!choices.empty()) {
      AlgorithmTable::Choice& last = choices.back();
      AlgorithmTable::Choice longer = last;
      longer.above = choice.above, longer.up_to = choice.up_to;
      if (longer == choice && last.up_to == choice.above) {
        last.up_to = choice.up_to;
        continue;
      }
    }
    choices.push_back(choice);
  }
  return choices;
}

}  // namespace aiacc::inter

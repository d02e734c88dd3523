#include "groupcomm/gradient/tuner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

namespace aiacc::gradient {
namespace {

constexpr std::uint64_t kLeastFusion = 256 << 10, kMostFusion = 128 << 20;
constexpr int kMostStreams = 16;
constexpr std::size_t kRepeated = 5, kWithOthers = 3, kRefined = 2, kRaced = 3;
constexpr int kLaps = 3;
constexpr std::uint64_t kMostTrials = 150;             // of one search, if times of passes are hardly ever known
constexpr std::uint64_t kRefining = kMostTrials - 32;  // the trials that are left when refining ends

// Logarithms, in 1/1024 octaves.
constexpr std::int32_t kOnePercent = 15, kQuarter = 330;
constexpr std::int32_t kSlack = 44, kAlarm = 220;  // 3 % and 16 %
constexpr std::uint64_t kPassesOfOne = 100;        // that pay for one step time

std::int32_t median_of(std::vector<std::int32_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// 2^(above / kOctave) - 1 in thousandths, or a little more: between powers of two the chord is above the curve.
std::uint64_t thousandths(std::int32_t above) {
  constexpr std::int32_t kMost = 10 * Tuner::kOctave;
  above = std::clamp(above, 0, kMost);
  const auto whole = static_cast<unsigned>(above / Tuner::kOctave);
  const auto rest = static_cast<std::uint64_t>(above % Tuner::kOctave);
  return ((1000 + 1000 * rest / Tuner::kOctave) << whole) - 1000;
}

}  // namespace

std::int32_t Tuner::log_time(Duration time) noexcept {
  const double nanoseconds = std::max(1.0, static_cast<double>(time / std::chrono::nanoseconds(1)));
  return static_cast<std::int32_t>(std::lround(std::log2(nanoseconds) * kOctave));
}

Tuner::Tuner(TunedSetting start, std::uint64_t step_bytes, int algorithms)
    : step_bytes_(std::max<std::uint64_t>(step_bytes, 1)),
      algorithms_(static_cast<std::size_t>(std::max(algorithms, 1))) {
  lay_out(start);
  begin_search();
  planned_ = measured_ = {start_, false};
}

void Tuner::lay_out(TunedSetting start) {
  const std::uint64_t most = std::min(kMostFusion, std::bit_ceil(step_bytes_));
  fusions_ = {start.fusion_bytes};
  for (std::uint64_t bytes = start.fusion_bytes / 2; bytes >= kLeastFusion; bytes /= 2)
    fusions_.insert(fusions_.begin(), bytes);
  for (std::uint64_t bytes = start.fusion_bytes; bytes < most; bytes *= 2) fusions_.push_back(2 * bytes);
  streams_ = {start.in_flight};
  for (int streams = start.in_flight / 2; streams >= 1; streams /= 2) streams_.insert(streams_.begin(), streams);
  for (int streams = 2 * start.in_flight; streams <= kMostStreams; streams *= 2) streams_.push_back(streams);
  times_.assign(algorithms_ * of_one_algorithm(), {});
  const auto fusion = std::find(fusions_.begin(), fusions_.end(), start.fusion_bytes) - fusions_.begin();
  const auto flight = std::find(streams_.begin(), streams_.end(), start.in_flight) - streams_.begin();
  const std::size_t algorithm = std::min(static_cast<std::size_t>(std::max(start.algorithm, 0)), algorithms_ - 1);
  best_ = start_ = algorithm * of_one_algorithm() + static_cast<std::size_t>(fusion) * streams_.size() +
                   static_cast<std::size_t>(flight);
}

TunedSetting Tuner::setting(std::size_t point) const noexcept {
  const std::size_t algorithm = algorithm_of(point), within = point % of_one_algorithm();
  return {fusions_[within / streams_.size()], streams_[within % streams_.size()], static_cast<int>(algorithm)};
}

void Tuner::adopt(TunedSetting setting, std::int32_t log_time) {
  lay_out(setting);
  queue_.clear();
  searches_ = 0;
  stage_ = Stage::kSettled;
  reference_ = log_time;
  windows_ = log_time == kUnknown ? 0 : kReferenceWindows;
  planned_ = {start_, false};
}

void Tuner::begin_search() {
  ++searches_;
  stage_ = Stage::kScreen;
  start_ = best_;
  for (auto& times : times_) times.clear();
  costs_.clear();
  last_trial_ = trials_ + kMostTrials;
  const std::size_t columns = streams_.size();
  std::vector<std::size_t> points;
  const auto distance = [&](std::size_t one) {
    const auto rows = static_cast<std::int64_t>(one / columns) - static_cast<std::int64_t>(start_ / columns);
    const auto across = static_cast<std::int64_t>(one % columns) - static_cast<std::int64_t>(start_ % columns);
    return std::pair(std::abs(rows), std::abs(across));
  };
  for (std::size_t one = 0; one < times_.size(); ++one) {
    const auto [rows, across] = distance(one);
    // With as many allreduces at a time as there are pieces, more change nothing.
    const TunedSetting tried = setting(one);
    const std::uint64_t pieces = (step_bytes_ + tried.fusion_bytes - 1) / tried.fusion_bytes;
    if (algorithm_of(one) != algorithm_of(start_) || rows % 2 != 0 || across % 2 != 0 ||
        (one != start_ && static_cast<std::uint64_t>(tried.in_flight) >= 2 * pieces))
      continue;
    points.push_back(one);
  }
  std::stable_sort(points.begin(), points.end(), [&](std::size_t one, std::size_t two) {
    const auto a = distance(one), b = distance(two);
    return a.first + a.second < b.first + b.second;
  });
  queue_.assign(points.begin(), points.end());
}

std::int32_t Tuner::least(std::size_t point) const noexcept {
  const auto& times = times_[point];
  return times.empty() ? kUnknown : *std::min_element(times.begin(), times.end());
}

std::vector<std::size_t> Tuner::ranking() const {
  std::vector<std::size_t> order;
  for (std::size_t one = 0; one < times_.size(); ++one)
    if (!times_[one].empty()) order.push_back(one);
  std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) { return least(a) < least(b); });
  return order;
}

// A point nearer to the start, in the same row or column, was much worse than the best.
bool Tuner::hopeless(std::size_t point) const {
  const std::size_t columns = streams_.size();
  std::int32_t best = kUnknown;
  for (std::size_t one = 0; one < times_.size(); ++one) best = std::min(best, least(one));
  const auto between = [](std::size_t one, std::size_t from, std::size_t to) {
    return from < to ? one > from && one < to : one < from && one > to;
  };
  for (std::size_t one = 0; one < times_.size(); ++one) {
    if (times_[one].empty() || least(one) <= best + kQuarter) continue;
    const bool row = one / columns == point / columns && between(one % columns, start_ % columns, point % columns);
    const bool column = one % columns == point % columns && between(one / columns, start_ / columns, point / columns);
    if (row || column) return true;
  }
  return false;
}

void Tuner::enqueue(std::size_t point) {
  const bool queued = std::find(queue_.begin(), queue_.end(), point) != queue_.end();
  if (times_[point].empty() && !queued) queue_.push_back(point);
}

void Tuner::add_neighbours(std::size_t of) {
  const std::size_t columns = streams_.size();
  const std::size_t row = of % of_one_algorithm() / columns, column = of % columns;
  if (row > 0) enqueue(of - columns);
  if (row + 1 < fusions_.size()) enqueue(of + columns);
  if (column > 0) enqueue(of - 1);
  if (column + 1 < columns) enqueue(of + 1);
}

void Tuner::add_others(std::size_t of) {
  for (std::size_t other = of % of_one_algorithm(); other < times_.size(); other += of_one_algorithm()) enqueue(other);
}

// All times of the stage are in.
void Tuner::next_stage() {
  const std::vector<std::size_t> order = ranking();
  switch (stage_) {
    case Stage::kScreen:
      stage_ = Stage::kRepeat;
      queue_.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(kRepeated, order.size())));
      break;
    case Stage::kRepeat:
      stage_ = Stage::kOthers;
      for (std::size_t which = 0; which < std::min(kWithOthers, order.size()); ++which) add_others(order[which]);
      break;
    case Stage::kOthers:
      stage_ = Stage::kRefine;
      for (std::size_t which = 0; which < std::min(kRefined, order.size()); ++which) add_neighbours(order[which]);
      break;
    case Stage::kRefine: {
      if (trials_ + kRefining < last_trial_) add_neighbours(order.front());
      if (!queue_.empty()) break;
      stage_ = Stage::kRace;
      std::vector<std::size_t> racers(order.begin(),
                                      order.begin() + static_cast<std::ptrdiff_t>(std::min(kRaced, order.size())));
      if (std::find(racers.begin(), racers.end(), start_) == racers.end()) racers.push_back(start_);
      for (std::size_t racer : racers) times_[racer].clear();
      for (int lap = 0; lap < kLaps; ++lap) {
        queue_.insert(queue_.end(), racers.begin(), racers.end());
        std::reverse(racers.begin(), racers.end());
      }
      for (std::size_t one = 0; one < times_.size(); ++one)
        if (std::find(racers.begin(), racers.end(), one) == racers.end()) times_[one].clear();
      break;
    }
    case Stage::kRace: settle(); break;
    case Stage::kSettled: break;
  }
  if (!order.empty() && stage_ != Stage::kSettled) best_ = order.front();
}

void Tuner::settle() {
  stage_ = Stage::kSettled;
  queue_.clear();
  best_ = start_;
  std::int32_t best = times_[start_].empty() ? kUnknown : median_of(times_[start_]) - kOnePercent;
  for (std::size_t one = 0; one < times_.size(); ++one) {
    if (times_[one].empty() || median_of(times_[one]) >= best) continue;
    best = median_of(times_[one]);
    best_ = one;
  }
  std::uint64_t cost = 0;
  if (best != kUnknown)
    for (std::int32_t time : costs_) cost += thousandths(time - best);
  passes_owed_ = searches_ == 1 ? 0 : cost * kPassesOfOne / 1000;
  passes_settled_ = 0;
  reference_ = kUnknown;
  windows_ = 0;
  slower_ = faster_ = 0;
}

void Tuner::watch(std::int32_t log_time) {
  passes_settled_ += kWindow;
  if (windows_ < kReferenceWindows) {
    reference_ = windows_ == 0 ? log_time : (reference_ * windows_ + log_time) / (windows_ + 1);
    ++windows_;
    return;
  }
  const std::int32_t away = log_time - reference_;
  slower_ = std::max(0, slower_ + away - kSlack);
  faster_ = std::max(0, faster_ - away - kSlack);
  if (std::max(slower_, faster_) <= kAlarm || passes_settled_ < passes_owed_) return;
  begin_search();
}

Tuner::Plan Tuner::told(std::int32_t log_time) {
  if (measured_.trial) --outstanding_;
  if (stage_ == Stage::kSettled) {
    if (log_time != kUnknown) watch(log_time);
  } else if (log_time != kUnknown) {
    times_[measured_.point].push_back(log_time);
    costs_.push_back(log_time);
  } else if (measured_.trial) {
    queue_.push_back(measured_.point);
  }
  measured_ = planned_;
  planned_ = {best_, false};
  if (stage_ == Stage::kScreen) std::erase_if(queue_, [this](std::size_t one) { return hopeless(one); });
  while (stage_ != Stage::kSettled && queue_.empty() && outstanding_ == 0) next_stage();
  if (stage_ != Stage::kSettled && trials_ == last_trial_) settle();
  if (stage_ == Stage::kSettled) {
    planned_.point = best_;
    return {planned(), kWindow};
  }
  ++trials_;
  if (!queue_.empty()) {
    planned_ = {queue_.front(), true};
    queue_.pop_front();
    ++outstanding_;
  } else {
    planned_.point = best_;
  }
  return {planned(), 1};
}

}  // namespace aiacc::gradient

// Tuner: which fusion size, how many allreduces at a time and which algorithm make training steps shortest, found on line over real
// steps.
//
// A pure state machine with integer arithmetic: every rank runs one on the same inputs and so comes to the same decisions. An input
// is how long a pass of the recorded schedule took, on the slowest rank, as a logarithm (log_time()); an output is the setting of a
// later pass. All lies on a lattice of powers of two around the first setting, once for each algorithm. A search has five stages:
//
//   screen   every second lattice point of either dimension once, from the start outwards, with the algorithm of the start; a line is
//            left where a point on it was a quarter worse than the best
//   repeat   the best five once more: stragglers make a step longer and never shorter, so the least of a point's times counts
//   others   the best three with each other algorithm
//   refine   the lattice neighbours of the best two, once
//   race     the best three and the start three times each, in turns; the least median wins. The start is left for a gain of
//            more than 1 % only.
//
// Settled. Of each kWindow passes the median is looked at by a two-sided CUSUM (Page, 1954): deviations from the time after the
// search, less 3 %, add up, and beyond 16 % there is another search: three windows for a network 10 % slower, two for one 20 %
// slower. The first is free. A later one waits until what the one before it cost, in step times, is 1 % of the passes since.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/time.h"

namespace aiacc::gradient {

struct TunedSetting {
  std::uint64_t fusion_bytes = 0;
  int in_flight = 0;
  int algorithm = 0;  // 0: as selection chooses; else an alternative, from 1 on
  bool operator==(const TunedSetting&) const = default;
};

class Tuner {
 public:
  static constexpr std::int32_t kOctave = 1024;  // steps of a logarithm for a factor of two
  static constexpr std::int32_t kUnknown = INT32_MAX;
  static constexpr int kWindow = 10;  // passes between two looks after the search

  // Of one rank; what all ranks use is their maximum.
  static std::int32_t log_time(Duration time) noexcept;

  struct Plan {
    TunedSetting setting;  // of the pass after the one that runs
    int passes = 1;        // until the next input
  };

  // `step_bytes`: what a pass reduces. Larger fusion sizes, and more allreduces than there are pieces, are not tried.
  // `algorithms`: among which to choose.
  Tuner(TunedSetting start, std::uint64_t step_bytes, int algorithms = 1);

  // Settles with what an earlier job found. Before the first told() only.
  void adopt(TunedSetting setting, std::int32_t log_time);
  // The time of the last pass that has ended, or the median of those since the last input; kUnknown if a rank does not know it.
  // One pass has begun since, with the setting of the plan before.
  Plan told(std::int32_t log_time);

  bool settled() const noexcept { return stage_ == Stage::kSettled; }
  TunedSetting planned() const noexcept { return setting(planned_.point); }
  TunedSetting best() const noexcept { return setting(best_); }
  // After the search; kUnknown in its first windows.
  std::int32_t best_time() const noexcept { return windows_ == kReferenceWindows ? reference_ : kUnknown; }
  std::uint64_t searches() const noexcept { return searches_; }  // that have begun
  std::uint64_t trials() const noexcept { return trials_; }      // passes of searches

 private:
  static constexpr int kReferenceWindows = 2;
  enum class Stage : std::uint8_t { kScreen, kRepeat, kOthers, kRefine, kRace, kSettled };
  struct Pass {
    std::size_t point = 0;
    bool trial = false;
  };

  void lay_out(TunedSetting start);
  TunedSetting setting(std::size_t point) const noexcept;
  std::size_t of_one_algorithm() const noexcept { return fusions_.size() * streams_.size(); }
  std::size_t algorithm_of(std::size_t point) const noexcept { return point / of_one_algorithm(); }
  void begin_search();
  void next_stage();
  void settle();
  void watch(std::int32_t log_time);
  bool hopeless(std::size_t point) const;
  std::int32_t least(std::size_t point) const noexcept;
  std::vector<std::size_t> ranking() const;  // of points that were tried, the best first
  void enqueue(std::size_t point);           // unless it was tried
  void add_neighbours(std::size_t of);
  void add_others(std::size_t of);

  const std::uint64_t step_bytes_;
  const std::size_t algorithms_;
  std::vector<std::uint64_t> fusions_;
  std::vector<int> streams_;
  std::vector<std::vector<std::int32_t>> times_;  // by point, of this search
  std::size_t start_ = 0, best_ = 0;              // points

  Stage stage_ = Stage::kScreen;
  std::deque<std::size_t> queue_;  // points to try
  Pass measured_, planned_;        // the pass that the next input is about, and the one after it
  std::size_t outstanding_ = 0;    // trials without a result
  std::uint64_t searches_ = 0, trials_ = 0, last_trial_ = 0;

  std::int32_t reference_ = kUnknown;
  int windows_ = 0;  // that the reference is made of
  std::int32_t slower_ = 0, faster_ = 0;
  std::uint64_t passes_settled_ = 0, passes_owed_ = 0;
  std::vector<std::int32_t> costs_;  // times of this search
};

}  // namespace aiacc::gradient

// The recorded schedule of the gradient negotiation, in three parts:
//
//   ScheduleRecorder   looks at what each online step launched and decides when a schedule begins. Its inputs are the same on
//                      all ranks, and therefore so are its decisions: there is nothing to agree on.
//   Schedule           the units of the schedule in order, and how far this rank is.
//   Lateness           how long a unit at the head has been waiting while something behind it was ready, and how long is too
//                      long. Of this rank alone.
//
// negotiator.h says how ranks leave a schedule.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "groupcomm/gradient/tensor_table.h"

namespace aiacc::gradient {

// The tensors of a step in the order of their reduction, before they are cut into units.
struct ScheduleOrder {
  std::vector<std::uint32_t> tensors;
  std::vector<std::uint64_t> bytes;
  std::vector<bool> joins;  // may be in one unit with the tensor before

  // The end of each unit of neighbours up to fusion_bytes. The first and the last ones of a step are smaller: nothing travels until a
  // unit is ready, and what is not reduced when the last gradient becomes ready is what the step waits for.
  std::vector<std::uint32_t> ends(std::uint64_t fusion_bytes) const;
};

class Schedule {
 public:
  // Units in order; `ends` has for each unit the end of its part of `tensors`. Begins a new epoch: nothing is ready.
  void assign(std::span<const std::uint32_t> tensors, std::span<const std::uint32_t> ends, std::size_t agreed_tensors);
  // Other units of the same tensors from this pass on; at_start(). Nothing is ready.
  void cut_anew(std::span<const std::uint32_t> ends);

  std::size_t units() const noexcept { return ends_.size(); }
  bool contains(std::uint32_t index) const noexcept { return index < unit_of_.size() && unit_of_[index] != kNoIndex; }
  // Tensor `index` is submitted; once until its unit is launched.
  void ready(std::uint32_t index) noexcept;

  // The unit at the head.
  std::span<const std::uint32_t> head() const noexcept;
  bool head_ready() const noexcept { return missing_[head_] == 0; }
  std::size_t head_tensors_ready() const noexcept { return head().size() - missing_[head_]; }
  // The head is incomplete and a unit behind it is complete.
  bool blocked() const noexcept { return !head_ready() && complete_ != 0; }
  // The head is launched, with zeros for what is missing.
  void advance() noexcept;

  std::uint64_t launched() const noexcept { return launched_; }  // units in this epoch
  std::uint64_t passes() const noexcept { return passes_; }
  bool at_start() const noexcept { return head_ == 0; }  // of a pass
  bool at_last() const noexcept { return head_ + 1 == ends_.size(); }

 private:
  void count_missing();

  std::vector<std::uint32_t> tensors_, ends_, unit_of_, missing_;
  std::uint32_t head_ = 0;
  std::size_t complete_ = 0;  // units, the head included
  std::uint64_t launched_ = 0, passes_ = 0;
};

class ScheduleRecorder {
 public:
  static constexpr std::uint64_t kMostSteps = 1000;
  static constexpr std::uint64_t kHeldLong = 10;  // times the steps that it took to arm

  // `steps` equal steps arm; -1: never.
  ScheduleRecorder(int steps, std::uint64_t fusion_bytes)
      : first_(steps < 0 ? 0 : static_cast<std::uint64_t>(steps == 0 ? 1 : steps)),
        needed_(first_),
        fusion_bytes_(fusion_bytes) {}

  // The launches of one result, in order. `urged`: a caller waited for one of them in the middle of its step; what comes
  // later is never put into one unit with these. `ends`: the step ends with this result; a tensor that the step had before is
  // then the next step's. Not twice in a row: then it was a late one of the step before, and each step would begin so. True:
  // all ranks go on with the schedule. `before`, if there are priorities: for each the tensor of an earlier result that it goes
  // before, or kNoIndex.
  bool result(std::span<const std::uint32_t> tensors, bool urged, bool ends,
              std::span<const std::uint32_t> before = {});
  // The step in hand is not like others (a rank has joined, a unit was cut, an operator is not a sum): it starts the count
  // anew.
  void disturb() noexcept { regular_ = false; }
  // After result() said true: the mean order of the equal steps. Tensors of different fusion keys do not join.
  ScheduleOrder order(const TensorTable& table) const;
  // Fills `schedule` with that, in units up to fusion_bytes.
  void make(const TensorTable& table, Schedule& schedule) const;
  // The schedule was broken after `passes` whole steps; `departed`: by a step that was different.
  void broke(std::uint64_t passes, bool departed) noexcept;

  bool in_step() const noexcept { return !step_.empty(); }
  std::uint64_t steps_needed() const noexcept { return needed_; }

 private:
  struct Tensor {
    bool in_step = false;
    bool in_last = false;         // in each of the equal steps so far
    std::uint32_t segment = 0;    // of the step in hand: waits in the middle of the step before it
    std::uint32_t place = 0;      // the segment among whose tensors it is launched: an earlier one by its priority
    std::uint64_t positions = 0;  // their sum over the equal steps
  };

  void take(std::uint32_t index, std::uint32_t before);
  void end_step();

  std::uint64_t first_, needed_, fusion_bytes_;
  std::uint64_t equal_ = 0;  // steps
  std::vector<Tensor> tensors_;
  std::vector<std::uint32_t> step_, last_, next_;  // of the step in hand, the equal ones, and the one after
  std::uint32_t segment_ = 0;
  bool regular_ = true;
  bool carried_ = false;  // the step in hand began with tensors of the result that ended the one before
};

class Lateness {
 public:
  explicit Lateness(Duration least) noexcept : least_(least) {}

  // Whether the head is waiting in the way of something ready. A wait that ended counts for the median.
  void update(bool blocked, Instant now) noexcept;
  // A wait that the caller ended (a break) does not count.
  void forget() noexcept { since_ = kNever; }
  Instant deadline() const noexcept { return since_ == kNever ? kNever : after(since_, limit()); }
  Duration limit() const noexcept;

 private:
  static constexpr std::size_t kSamples = 15;
  static constexpr int kTimesMedian = 10;

  Duration least_;
  Instant since_ = kNever;
  std::array<Duration, kSamples> samples_{};
  std::size_t taken_ = 0;
};

}  // namespace aiacc::gradient

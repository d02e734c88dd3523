#include "groupcomm/gradient/schedule.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.h"

namespace aiacc::gradient {
namespace {

// A unit has at most this part of what comes before it and of what is left, so that the network has something to do early, and is
// done with a unit when the next one is ready as long as it takes at most three quarters of the time of backward; down to units of
// this part of the fusion size.
constexpr std::uint64_t kOfTheRest = 4, kOfFusion = 16;

}  // namespace

std::vector<std::uint32_t> ScheduleOrder::ends(std::uint64_t fusion_bytes) const {
  const std::uint64_t least = fusion_bytes / kOfFusion;
  std::vector<std::uint32_t> ends;
  std::uint64_t unit = 0, before = 0;
  std::uint64_t left = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});  // with the unit
  for (std::uint32_t at = 0; at < tensors.size(); ++at) {
    const std::uint64_t most = std::clamp(std::min(before, left) / kOfTheRest, least, fusion_bytes);
    const bool with_last = joins[at] && unit + bytes[at] <= (unit < least ? fusion_bytes : most);
    if (with_last) {
      ends.pop_back();
    } else {
      before += unit;
      left -= unit;
      unit = 0;
    }
    unit += bytes[at];
    ends.push_back(at + 1);
  }
  return ends;
}

void Schedule::assign(std::span<const std::uint32_t> tensors, std::span<const std::uint32_t> ends,
                      std::size_t agreed_tensors) {
  AIACC_INVARIANT(!ends.empty() && ends.back() == tensors.size(),
                  "a schedule has units, which have all of its tensors");
  tensors_.assign(tensors.begin(), tensors.end());
  ends_.assign(ends.begin(), ends.end());
  unit_of_.assign(agreed_tensors, kNoIndex);
  count_missing();
  head_ = 0;
  launched_ = passes_ = 0;
}

void Schedule::cut_anew(std::span<const std::uint32_t> ends) {
  AIACC_INVARIANT(at_start() && !ends.empty() && ends.back() == tensors_.size(), "units change between passes");
  ends_.assign(ends.begin(), ends.end());
  count_missing();
}

void Schedule::count_missing() {
  missing_.clear();
  std::uint32_t begin = 0;
  for (std::uint32_t unit = 0; unit < ends_.size(); ++unit) {
    for (std::uint32_t at = begin; at < ends_[unit]; ++at) unit_of_[tensors_[at]] = unit;
    missing_.push_back(ends_[unit] - begin);
    begin = ends_[unit];
  }
  complete_ = 0;
}

void Schedule::ready(std::uint32_t index) noexcept {
  if (--missing_[unit_of_[index]] == 0) ++complete_;
}

std::span<const std::uint32_t> Schedule::head() const noexcept {
  const std::uint32_t begin = head_ == 0 ? 0 : ends_[head_ - 1];
  return std::span(tensors_).subspan(begin, ends_[head_] - begin);
}

void Schedule::advance() noexcept {
  if (head_ready()) --complete_;
  missing_[head_] = static_cast<std::uint32_t>(head().size());
  if (at_last()) ++passes_;
  head_ = at_last() ? 0 : head_ + 1;
  ++launched_;
}

bool ScheduleRecorder::result(std::span<const std::uint32_t> tensors, bool urged, bool ends,
                              std::span<const std::uint32_t> before) {
  next_.clear();
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    const std::uint32_t index = tensors[at];
    if (index >= tensors_.size()) tensors_.resize(index + 1);
    if (!tensors_[index].in_step) {
      take(index, before.empty() ? kNoIndex : before[at]);
    } else if (ends && !carried_) {
      next_.push_back(index);
    } else {
      regular_ = false;
    }
  }
  if (urged && !tensors.empty()) ++segment_;
  if (!ends) return false;
  end_step();
  // A schedule begins with a whole step.
  return first_ != 0 && equal_ >= needed_ && next_.empty();
}

// What it goes before has begun on no rank, so nobody can have waited for that before it was submitted: it belongs to that segment.
void ScheduleRecorder::take(std::uint32_t index, std::uint32_t before) {
  Tensor& tensor = tensors_[index];
  tensor.in_step = true;
  tensor.segment = tensor.place = segment_;
  auto at = step_.end();
  if (before < tensors_.size() && tensors_[before].in_step) {
    at = std::find(step_.begin(), step_.end(), before);
    tensor.place = tensors_[before].place;
  }
  step_.insert(at, index);
}

void ScheduleRecorder::end_step() {
  const bool equal =
      step_.size() == last_.size() &&
      std::all_of(step_.begin(), step_.end(), [this](std::uint32_t index) { return tensors_[index].in_last; });
  if (!equal || !regular_) {
    for (std::uint32_t index : last_) tensors_[index].in_last = false;
    last_.clear();
    equal_ = 0;
  }
  if (regular_ && !step_.empty()) {
    ++equal_;
    for (std::size_t position = 0; position < step_.size(); ++position) {
      Tensor& tensor = tensors_[step_[position]];
      if (!tensor.in_last) tensor.positions = 0;
      tensor.in_last = true;
      tensor.positions += position;
    }
    last_ = step_;
  }
  for (std::uint32_t index : step_) tensors_[index].in_step = false;
  step_.clear();
  segment_ = 0;
  regular_ = regular_ || next_.empty();  // what disturbed this step may be what the next one begins with
  for (std::uint32_t index : next_) take(index, kNoIndex);
  carried_ = !next_.empty();
}

ScheduleOrder ScheduleRecorder::order(const TensorTable& table) const {
  ScheduleOrder order;
  order.tensors = last_;
  std::sort(order.tensors.begin(), order.tensors.end(), [this](std::uint32_t one, std::uint32_t two) {
    const Tensor &a = tensors_[one], &b = tensors_[two];
    return std::tie(a.place, a.positions, one) < std::tie(b.place, b.positions, two);
  });
  for (std::size_t at = 0; at < order.tensors.size(); ++at) {
    const std::uint32_t index = order.tensors[at], before = order.tensors[at == 0 ? 0 : at - 1];
    order.bytes.push_back(table.agreed(index).bytes);
    order.joins.push_back(at != 0 && tensors_[before].segment == tensors_[index].segment &&
                          table.fusion_class(before) == table.fusion_class(index));
  }
  return order;
}

void ScheduleRecorder::make(const TensorTable& table, Schedule& schedule) const {
  const ScheduleOrder order = this->order(table);
  schedule.assign(order.tensors, order.ends(fusion_bytes_), table.agreed_tensors());
}

void ScheduleRecorder::broke(std::uint64_t passes, bool departed) noexcept {
  if (departed) needed_ = passes >= kHeldLong * needed_ ? first_ : std::min(2 * needed_, std::max(first_, kMostSteps));
  for (std::uint32_t index : step_) tensors_[index].in_step = false;
  step_.clear();
  for (std::uint32_t index : last_) tensors_[index].in_last = false;
  last_.clear();
  equal_ = 0;
  segment_ = 0;
  regular_ = false;  // the step that was cut
  carried_ = false;
}

void Lateness::update(bool blocked, Instant now) noexcept {
  if (blocked == (since_ != kNever)) return;
  if (blocked) {
    since_ = now;
    return;
  }
  samples_[taken_++ % kSamples] = now - since_;
  since_ = kNever;
}

Duration Lateness::limit() const noexcept {
  const std::size_t count = std::min(taken_, kSamples);
  if (count == 0) return least_;
  std::array<Duration, kSamples> sorted = samples_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(count));
  return std::max(least_, kTimesMedian * *middle);
}

}  // namespace aiacc::gradient

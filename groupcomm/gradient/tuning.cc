#include "groupcomm/gradient/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "groupcomm/gradient/kind.h"

namespace aiacc::gradient {
namespace {

// Fusion sizes are words of their own.
std::uint64_t packed(const TuneCache::Entry& entry) noexcept {
  return static_cast<std::uint64_t>(entry.setting.algorithm) << 48 |
         static_cast<std::uint64_t>(entry.setting.in_flight) << 32 | static_cast<std::uint64_t>(entry.log_time);
}

TuneCache::Entry unpacked(std::uint64_t fusion_bytes, std::uint64_t rest) noexcept {
  return {{fusion_bytes, static_cast<int>(rest >> 32 & UINT16_MAX), static_cast<int>(rest >> 48)},
          static_cast<std::int32_t>(rest & UINT32_MAX)};
}

// The alternatives are those to what is chosen for such sums.
bool is_plain(const Kind& kind) noexcept {
  return kind.type == DType::kFloat32 && kind.sums() && !kind.wire && kind.codec == Codec::kNone && !kind.is_table();
}

double seconds_of(std::int32_t log_time) { return std::exp2(static_cast<double>(log_time) / Tuner::kOctave) * 1e-9; }

}  // namespace

Tuning::Tuning(TuningOptions options)
    : options_(std::move(options)), cache_(options_.cache), setting_(options_.start), planned_(options_.start) {
  Hash64 choice;
  for (const std::string& name : options_.alternatives) choice.add(name);
  hash_ = choice.value();
}

void Tuning::tell(const std::string& line, bool warns) const {
  if (options_.rank == 0 && options_.tells) options_.tells(fmt::format("{}: {}", options_.described, line), warns);
}

std::string Tuning::text_of(TunedSetting setting) const {
  const auto by = static_cast<std::size_t>(setting.algorithm);
  return fmt::format("{} B and {} at a time{}{}", setting.fusion_bytes, setting.in_flight, by == 0 ? "" : " by ",
                     by == 0 ? "" : options_.alternatives[by - 1]);
}

TunedSetting Tuning::begin_pass() { return setting_ = planned_; }

void Tuning::pass_ended(std::uint64_t pass, Instant now) {
  if (pass <= void_) return;
  ended_ = pass;
  if (last_end_ != kNever) times_.push_back(Tuner::log_time(now - last_end_));
  last_end_ = now;
}

void Tuning::interrupted() noexcept {
  void_ = ended_ = launched_;
  last_end_ = kNever;
  times_.clear();
}

void Tuning::begin(const TensorTable& table) {
  std::uint64_t bytes = 0, plain_bytes = 0;
  Hash64 key;
  key.add(options_.placement).add(options_.start.fusion_bytes);
  for (const std::string& name : options_.alternatives) key.add(name);
  for (std::uint32_t index = 0; index < table.agreed_tensors(); ++index) {
    const TensorRecord& record = table.agreed(index);
    bytes += record.bytes;
    if (is_plain(Kind::of(record))) plain_bytes += record.bytes;
    key.add(record.name).add(record.bytes).add(record.fusion_key);
  }
  key_ = key.value();
  const bool has_alternatives = plain_bytes > bytes / 2;
  tuner_.emplace(options_.start, bytes, 1 + (has_alternatives ? static_cast<int>(options_.alternatives.size()) : 0));
  if (options_.rank == 0) look_into_cache();
}

void Tuning::look_into_cache() {
  std::string complaint;
  remembered_ = cache_.find(key_, complaint);
  if (!complaint.empty()) tell(complaint, true);
}

Tuning::Words Tuning::vote(const TensorTable& table) {
  if (!tuner_) begin(table);
  Words words{};
  // A pass whose end this rank has not seen yet has no time.
  const bool whole = ended_ == launched_ && !times_.empty();
  std::int32_t time = Tuner::kUnknown;
  if (whole) {
    const std::size_t some = std::min(times_.size(), static_cast<std::size_t>(passes_));
    const auto begin = times_.end() - static_cast<std::ptrdiff_t>(some);
    const auto middle = begin + static_cast<std::ptrdiff_t>((some - 1) / 2);
    std::nth_element(begin, middle, times_.end());
    time = *middle;
  }
  times_.clear();
  words[kTime] = static_cast<std::uint64_t>(time);
  if (remembered_ && !adopted_) {
    words[kFusion] = remembered_->setting.fusion_bytes;
    words[kRestAndTime] = packed(*remembered_);
  }
  words[kHash] = hash_;
  words[kHashComplement] = ~hash_;
  return words;
}

Tuner::Plan Tuning::voted(const Words& most) {
  if (most[kHash] != ~most[kHashComplement])
    throw Error(Code::kProtocol, fmt::format("{}: the tuners of the ranks differ", options_.described));
  if (most[kFusion] != 0 && !adopted_) {
    adopted_ = told_settled_ = saved_ = true;
    const TuneCache::Entry known = unpacked(most[kFusion], most[kRestAndTime]);
    tuner_->adopt(known.setting, known.log_time);
    tell(fmt::format("the tuner knows this model and takes {}", text_of(tuner_->best())));
  }
  const std::uint64_t searches = tuner_->searches();
  const Tuner::Plan plan = tuner_->told(static_cast<std::int32_t>(most[kTime]));
  planned_ = plan.setting;
  passes_ = plan.passes;
  hash_ = Hash64()
              .add(hash_)
              .add(most[kTime])
              .add(plan.setting.fusion_bytes)
              .add(static_cast<std::uint64_t>(plan.setting.in_flight))
              .add(static_cast<std::uint64_t>(plan.setting.algorithm))
              .value();
  if (tuner_->searches() != searches) {
    told_settled_ = saved_ = false;
    first_trials_ = tuner_->trials();
    tell("the time of a step has changed: the tuner searches again");
  }
  if (!tuner_->settled()) return plan;
  if (!std::exchange(told_settled_, true))
    tell(fmt::format("the tuner has settled after {} steps on {}", tuner_->trials() - first_trials_,
                     text_of(plan.setting)));
  if (!saved_ && tuner_->best_time() != Tuner::kUnknown) remember();
  return plan;
}

void Tuning::remember() {
  saved_ = true;
  tell(fmt::format("a step takes {:.3g} s with {}", seconds_of(tuner_->best_time()), text_of(tuner_->best())));
  if (options_.rank != 0) return;
  const std::string complaint = cache_.put(key_, {tuner_->best(), tuner_->best_time()});
  if (!complaint.empty()) tell(complaint, true);
}

}  // namespace aiacc::gradient

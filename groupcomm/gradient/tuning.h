// Tuning: brings the tuner (tuner.h) to an engine. It takes the times of the passes, agrees on them with the other ranks, and
// remembers what was found.
//
// Agreement. A vote is a small allreduce, the maximum of each number, that is launched before the first launch of a pass of the
// recorded schedule, and so by all ranks or by none. It has the time of the pass before. Its answer is there before the next pass
// begins, because that one's gradients cannot be submitted before those of this one are complete: nothing waits for it. After
// the search there is one vote in ten passes. What an earlier job found is known to rank 0 alone, and comes to the others with the first vote.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "groupcomm/gradient/tensor_table.h"
#include "groupcomm/gradient/tune_cache.h"
#include "groupcomm/gradient/tuner.h"

namespace aiacc::gradient {

struct TuningOptions {
  TunedSetting start;
  std::vector<std::string> alternatives;  // names of algorithms, by TunedSetting::algorithm from 1 on
  std::string described;                  // the engine, for messages
  int rank = 0;
  std::uint64_t placement = 0;  // of the ranks; a part of the cache's key
  std::string cache;            // path; empty: none
  // A line of the log; `warns`: of what did not work.
  std::function<void(const std::string& line, bool warns)> tells;
};

class Tuning {
 public:
  static constexpr std::size_t kWords = 5;
  using Words = std::array<std::uint64_t, kWords>;

  explicit Tuning(TuningOptions options);

  // --- passes of the recorded schedule, in the order of events on this rank
  // Returns what holds from now on.
  TunedSetting begin_pass();
  // The last launch of a pass is launched, or has ended. Passes are numbered by the former.
  std::uint64_t pass_launched() { return ++launched_; }
  void pass_ended(std::uint64_t pass, Instant now);
  // Something else than the schedule was launched or waited for: the times of passes around it mean nothing.
  void interrupted() noexcept;

  // --- votes
  Words vote(const TensorTable& table);
  Tuner::Plan voted(const Words& most);

  bool settled() const noexcept { return tuner_ && tuner_->settled(); }
  TunedSetting setting() const noexcept { return setting_; }
  std::uint64_t trials() const noexcept { return tuner_ ? tuner_->trials() : 0; }
  std::uint64_t searches() const noexcept { return tuner_ ? tuner_->searches() : 0; }

 private:
  enum Word : std::uint8_t { kTime, kFusion, kRestAndTime, kHash, kHashComplement };

  void begin(const TensorTable& table);
  void look_into_cache();
  void remember();
  void tell(const std::string& line, bool warns = false) const;
  std::string text_of(TunedSetting setting) const;

  const TuningOptions options_;
  TuneCache cache_;
  std::optional<Tuner> tuner_;
  std::uint64_t key_ = 0;
  std::uint64_t hash_ = 0;  // of all that was agreed on
  std::optional<TuneCache::Entry> remembered_;
  bool adopted_ = false, told_settled_ = false, saved_ = false;
  std::uint64_t first_trials_ = 0;

  TunedSetting setting_, planned_;  // of this pass, and of the next
  int passes_ = 1;                  // between this vote and the one before
  std::uint64_t launched_ = 0, ended_ = 0, void_ = 0;
  Instant last_end_ = kNever;
  std::vector<std::int32_t> times_;  // since the last vote
};

}  // namespace aiacc::gradient

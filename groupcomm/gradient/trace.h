// EngineTrace: what an engine says to the timeline (runtime/timeline): a row for each tensor, one for the rounds of negotiation, and
// a mark where each step ends.
//
//   pack       copied into the slot by the caller, or encoded for the 16-bit wire
//   wait       submitted; this rank has not told the others
//   negotiate  from the round to which this rank has contributed it to its launch
//   queue      launched; others run before it
//   reduce     from the begin of its launch's first allreduce to the end of the last
//   unpack     decoded, or copied to the caller's memory
//
// under these names or Horovod's (runtime/timeline/names.h).
//
// Whether a submission is traced is decided when it comes: its time of submission says so. All but `on` is for the lane's thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/task/loop.h"
#include "groupcomm/gradient/inbox.h"
#include "groupcomm/gradient/launches.h"
#include "runtime/timeline/timeline.h"

namespace aiacc::gradient {

class EngineTrace {
 public:
  EngineTrace(Timeline& timeline, Loop& loop, std::string engine)
      : timeline_(timeline), loop_(loop), engine_(std::move(engine)) {}

  void submitted() noexcept { unmarked_ = true; }
  // A round begins with all that is pending.
  void contributed(const std::vector<Inbox::Tensor*>& tensors) {
    if (timeline_.on()) contribute(tensors);
  }
  void round_ended(std::uint64_t round);
  void launched(Launches::Flight& flight) noexcept;
  // Its tensors are complete. Their callers may have submitted them again already.
  void ended(Launches::Flight& flight);
  void flushed();

 private:
  static constexpr Timeline::Row kNoRow = UINT32_MAX;  // none yet
  void contribute(const std::vector<Inbox::Tensor*>& tensors) noexcept;
  Timeline::Row row_of(Inbox::Tensor& tensor);
  Timeline::Row own_row();
  void span(Timeline::Row row, const char* name, Instant begin, Instant end) noexcept {
    if (begin < end) timeline_.span(row, name, begin, end);
  }

  Timeline& timeline_;
  Loop& loop_;
  const std::string engine_;
  std::vector<Timeline::Row> rows_;  // by a tensor's number
  Timeline::Row own_ = kNoRow;
  bool unmarked_ = false;  // something was submitted since the last mark
  std::int64_t steps_ = 0;
  Instant round_began_{};
};

}  // namespace aiacc::gradient

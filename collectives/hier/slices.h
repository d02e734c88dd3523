// A long payload goes in slices: while some of them are between hosts, the next one is reduced or collected on each host, and
// the one before them is distributed there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "base/task/scope.h"
#include "collectives/hier/hier_call.h"
#include "collectives/hier/select.h"
#include "collectives/inter/inter_call.h"

namespace aiacc::hier {

// An upper bound of the steps, by which messages are told apart, that a slice takes in a ring of the hosts: an allgather, a
// reduce-scatter or both, of up to kSliceBytes in fp32 or in 16-bit floats whose sums are in fp32.
inline std::uint64_t ring_steps_of_slice(const HierCall& call) noexcept {
  return 2 * static_cast<std::uint64_t>(call.view.hosts()) * inter::pieces_of(2 * kSliceBytes, inter::kSliceBytes);
}

// Runs a collective in slices. Run is that collective:
//   Task<void> before(std::size_t slice, Stop&)   the phases on this host whose results travel; slice after slice
//   bool exchanges()                              whether this rank takes part between hosts
//   Task<void> between(std::size_t slice, Stop&)  between hosts; at most kSlicesBetween + 1 slices at a time
//   bool waits()                                  whether after() needs what between() brings. If so, before() of the slice that is
//                                                 kSlicesBetween + 1 later follows between(), whose memory it may use again
//   Task<void> after(std::size_t slice, Stop&)    the phases on this host that distribute what came; slice after slice
template <class Run>
class Slices {
 public:
  Slices(Run& run, Operation& op, std::size_t slices) : run_(run), op_(op), slices_(slices) {}

  Task<void> run() {
    if (slices_ == 1) {
      co_await run_.before(0, op_.stop);
      if (run_.exchanges()) co_await run_.between(0, op_.stop);
      co_await run_.after(0, op_.stop);
      co_return;
    }
    for (std::size_t slice = 0; slice < slices_; ++slice) came_.emplace_back(op_.team.loop);
    Scope scope(op_.team.loop, op_.stop);
    scope.spawn(run_all(scope));
    co_await scope.join();
  }

 private:
  Task<void> run_all(Scope& scope) {
    for (std::size_t step = 0; step < slices_ + kSlicesBetween; ++step) {
      if (step < slices_) {
        co_await run_.before(step, scope.stop());
        if (run_.exchanges()) scope.spawn(exchange(step, scope.stop()));
      }
      if (step < kSlicesBetween) continue;
      const std::size_t slice = step - kSlicesBetween;
      if (run_.waits()) co_await came_[slice].wait(scope.stop());
      co_await run_.after(slice, scope.stop());
    }
  }
  Task<void> exchange(std::size_t slice, Stop& stop) {
    co_await run_.between(slice, stop);
    came_[slice].set();
  }

  Run& run_;
  Operation& op_;
  const std::size_t slices_;
  std::deque<Event> came_;  // by slice: what comes from other hosts is here
};

template <class Run>
Task<void> in_slices(Run& run, Operation& op, std::size_t slices) {
  Slices<Run> all(run, op, slices);
  co_await all.run();
}

}  // namespace aiacc::hier

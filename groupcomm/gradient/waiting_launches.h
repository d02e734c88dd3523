// WaitingLaunches: what all ranks have agreed to launch and this rank has not begun, by priority.
//
// All ranks have one sequence of launches and begin them from its front, each at its own pace. What a round adds goes before
// what has a lower priority, but not before what some rank may have begun. Each rank says that in its word: a number of launches
// that it does not exceed until it has the round's result. Those up to the MAX of these numbers keep their places, so the
// sequence follows from the results of the rounds alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "groupcomm/gradient/tensor_table.h"

namespace aiacc::gradient {

class WaitingLaunches {
 public:
  struct Waiting {
    std::int32_t priority = 0;
    bool follow_up = false;
    std::uint64_t bytes = 0;
    std::vector<std::uint32_t> tensors;
    std::vector<std::uint8_t> mine;
  };

  bool empty() const noexcept { return first_ == launches_.size(); }
  // Its lists are empty, and are filled by the caller. Behind the first `settled` and whatever has its priority or a higher one.
  Waiting& add(std::int32_t priority, std::uint64_t settled);
  // The first tensor of the launch behind the one that was added last, kNoIndex if there is none.
  std::uint32_t behind_added() const noexcept;
  const Waiting& front() const noexcept { return launches_[first_]; }
  void pop() noexcept { ++first_; }
  // At the front: one, or so many as have together at most `bytes`; 0 if there is none.
  std::uint64_t fit(std::uint64_t bytes) const noexcept;

 private:
  // From first_ on; those before it lend their storage to the next ones.
  std::vector<Waiting> launches_;
  std::size_t first_ = 0, added_ = 0;
};

}  // namespace aiacc::gradient

// Compute: where elements are copied and reduced. Awaitable, so that a CPU runs it inline, a GPU completes it by an event,
// and the simulator charges virtual time for it and may not touch any byte.
//
// Every implementation gives the same bits: n operands are combined in the order they are given, in the accumulate type,
// and rounded once.
#pragma once

#include <coroutine>
#include <span>

#include "base/data/buffer.h"
#include "base/data/reduction.h"
#include "base/task/loop.h"

namespace aiacc {

class Compute {
 public:
  virtual ~Compute() = default;

  // What the caller awaits: ready at once when the work ran inline. A plain awaiter without a frame.
  class [[nodiscard]] Done {
   public:
    Done() = default;                                                       // finished inline
    Done(Loop& loop, Instant when) noexcept : loop_(&loop), when_(when) {}  // finished at `when` (simulator)
    bool await_ready() noexcept { return loop_ == nullptr; }
    void await_suspend(std::coroutine_handle<> self) {
      alarm_.self = self;
      loop_->arm(alarm_, when_);
    }
    void await_resume() const noexcept {}

   private:
    struct Alarm final : Timer {
      std::coroutine_handle<> self;
      void expired() noexcept override { resume(self); }
    };
    Loop* loop_ = nullptr;
    Instant when_{};
    Alarm alarm_;
  };

  // destination[i] = source[i]; must not overlap. Lengths are equal.
  virtual Done copy(Buffer destination, Buffer source) = 0;
  // The same for a destination that another core reads next, and this one does not: a CPU writes it past its cache.
  virtual Done copy_for_others(Buffer destination, Buffer source) { return copy(destination, source); }

  // Each destination[i] = finish(op over operands in order of prescale * operand[i]), for `count` elements. In one pass: n
  // loads and as many stores as there are destinations. A destination may be one of the operands exactly, or apart from
  // all. `finish` applies AVG's division by `ranks` and the postscale if `last` is set, nothing otherwise; likewise
  // prescale only if `first` is set: rings call this once a step, direct algorithms once in all. Where operands and results
  // differ in size (Reduction::partial), destinations are apart from all operands.
  struct Step {
    bool first = true;
    bool last = true;
    int ranks = 1;
    int for_others = 0;  // so many of the first destinations are as those of copy_for_others()
  };
  virtual Done reduce(std::span<const Buffer> destinations, std::span<const Buffer> operands, std::size_t count,
                      const Reduction& reduction, Step step) = 0;
};

}  // namespace aiacc

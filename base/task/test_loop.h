// A minimal loop whose virtual time jumps to the next timer. For unit tests of code that needs only a loop.
#pragma once

#include "base/task/loop.h"
#include "base/task/timer_queue.h"

namespace aiacc {

class TestLoop final : public Loop {
 public:
  Instant now() noexcept override { return now_; }
  void post(Job& job) noexcept override { jobs_.push_back(job); }
  void wake() noexcept override {}

  // Runs `task` to its end and returns its result; throws kInternal if neither a job nor a timer is left to finish it.
  template <class T>
  T run(Task<T> task) {
    task.start();
    while (!task.done()) {
      if (!turn()) throw Error(Code::kInternal, "the task waits for something that never comes");
    }
    return task.take();
  }

  // One job or the next timer; false if there is neither.
  bool turn() {
    if (Job* job = jobs_.pop_front()) {
      job->run();
      return true;
    }
    if (timers_.next() == kNever) return false;
    now_ = std::max(now_, timers_.next());
    timers_.pop_due(now_)->expired();
    return true;
  }

 private:
  void do_arm(Timer& timer) override { timers_.add(timer, when(timer)); }
  void do_disarm(Timer& timer) noexcept override { timers_.remove(timer); }

  Instant now_{};
  IntrusiveList<Job> jobs_;
  TimerQueue timers_;
};

}  // namespace aiacc

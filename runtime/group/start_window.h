// StartWindow: of a group's collectives among hosts that are operations, the oldest 64 run, and the others wait until one of these ends,
// in the order of the calls. Each member goes on with its oldest, so the oldest of all goes on everywhere; and thousands that are
// outstanding take neither the memory of thousands of algorithms nor, by turns through all of these, caches and time.
//
// A call whose messages are in other classes than those of the call before it does not wait: it may be urgent. With it start all that
// are before it, because collectives of a group start in the order of their calls.
#pragma once

#include "base/intrusive_list.h"
#include "base/task/loop.h"
#include "transports/operation_traffic.h"

namespace aiacc {

class StartWindow {
 public:
  // co_await it once, in the order of the calls; then a Running exists until the collective has ended.
  class Await final : public Leaf, public ListNode<Await> {
   public:
    Await(StartWindow& window, OperationTraffic traffic, Loop& loop, Stop& stop) noexcept
        : Leaf(loop, stop), window_(window), traffic_(traffic) {}
    void await_resume() const {
      Leaf::await_resume();
      if (waited_) --window_.resuming_;
    }

   private:
    friend class StartWindow;
    bool try_now() override {
      other_ = traffic_ != window_.last_;
      window_.last_ = traffic_;
      const bool others_first = window_.resuming_ > 0 || !window_.waiting_.empty();
      if (others_first || (window_.running_ >= kMost && !other_)) return false;
      ++window_.running_;
      return true;
    }
    void begin() noexcept override {
      waited_ = true;
      window_.waiting_.push_back(*this);
      window_.start(other_);
    }
    void cancel() noexcept override { ListNode<Await>::unlink(); }

    StartWindow& window_;
    OperationTraffic traffic_;
    bool other_ = false;
    bool waited_ = false;
  };

  class Running {
   public:
    explicit Running(StartWindow& window) noexcept : window_(window) {}
    ~Running() {
      --window_.running_;
      window_.start(false);
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    StartWindow& window_;
  };

 private:
  static constexpr int kMost = 64;

  void start(bool all) noexcept {
    while ((all || running_ < kMost) && !waiting_.empty()) {
      ++running_;
      ++resuming_;  // until then nobody goes ahead
      waiting_.pop_front()->complete();
    }
  }

  int running_ = 0;
  int resuming_ = 0;
  OperationTraffic last_{};
  IntrusiveList<Await> waiting_;
};

}  // namespace aiacc

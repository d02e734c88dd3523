// StartWindow: of a group's collectives among hosts that are operations, the oldest 64 run, and the others wait until one of these ends,
// in the order of the calls. Each member goes on with its oldest, so the oldest of all goes on everywhere; and thousands that are
// outstanding take neither the memory of thousands of algorithms nor, by turns through all of these, caches and time.
//
// A call whose messages are in other classes than those of the calls that are counted does not wait, and is not counted: it may be
// urgent. With it start all that are before it, because collectives of a group start in the order of their calls.
#pragma once

#include "base/intrusive_list.h"
#include "base/task/loop.h"
#include "transports/match_group.h"
#include "transports/operation_traffic.h"

namespace aiacc {

class StartWindow {
 public:
  // co_await it once, in the order of the calls. Its result is for a Running, which then exists until the collective has ended.
  class Await final : public Leaf, public ListNode<Await> {
   public:
    Await(StartWindow& window, std::uint64_t sequence, OperationTraffic traffic, Loop& loop, Stop& stop) noexcept
        : Leaf(loop, stop), window_(window), sequence_(sequence), traffic_(traffic) {}
    bool await_resume() const {
      Leaf::await_resume();
      if (waited_) --window_.resuming_;
      return counted_;
    }

   private:
    friend class StartWindow;
    bool try_now() override {
      const bool others_first = window_.resuming_ > 0 || !window_.waiting_.empty();
      if (window_.running_ == 0 && !others_first) window_.traffic_ = traffic_;
      counted_ = traffic_ == window_.traffic_;
      if (others_first || (counted_ && window_.running_ >= kMost)) return false;
      if (counted_) ++window_.running_;
      return true;
    }
    void begin() noexcept override {
      waited_ = true;
      window_.waiting_.push_back(*this);
      window_.last_ = sequence_;
      window_.start(!counted_);
    }
    void cancel() noexcept override {
      ListNode<Await>::unlink();
      window_.tell_mailbox();
    }

    StartWindow& window_;
    const std::uint64_t sequence_;
    const OperationTraffic traffic_;
    bool counted_ = false;
    bool waited_ = false;
  };

  class Running {
   public:
    Running(StartWindow& window, bool counted) noexcept : window_(window), counted_(counted) {}
    ~Running() {
      if (!counted_) return;
      --window_.running_;
      window_.start(false);
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    StartWindow& window_;
    const bool counted_;
  };

  // Hears which calls wait; it lives as long as they.
  void tell(MatchGroup& group) noexcept { told_ = &group; }
  bool makes_wait(std::uint64_t sequence) const noexcept {
    return !waiting_.empty() && sequence >= waiting_.front().sequence_ && sequence <= last_;
  }

 private:
  static constexpr int kMost = 64;

  void start(bool all) noexcept {
    while ((all || running_ < kMost) && !waiting_.empty()) {
      Await& first = *waiting_.pop_front();
      if (first.counted_) ++running_;
      ++resuming_;  // until then nobody goes ahead
      first.complete();
    }
    tell_mailbox();
  }
  // So that members which ask about one that waits hear that it was made.
  void tell_mailbox() noexcept {
    if (told_ == nullptr) return;
    told_->in_turn = waiting_.empty() ? MatchGroup::Queued{} : MatchGroup::Queued{waiting_.front().sequence_, last_};
  }

  int running_ = 0;  // that are counted
  int resuming_ = 0;
  OperationTraffic traffic_{};  // of those that are counted
  std::uint64_t last_ = 0;      // the newest that has waited
  IntrusiveList<Await> waiting_;
  MatchGroup* told_ = nullptr;
};

}  // namespace aiacc

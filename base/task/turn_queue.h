// TurnQueue: a fair lock for coroutines of one loop: they get their turns in the order in which they asked.
#pragma once

#include "base/intrusive_list.h"
#include "base/task/loop.h"

namespace aiacc {

class TurnQueue {
 public:
  class Await final : public Leaf, public ListNode<Await> {
   public:
    Await(TurnQueue& queue, Loop& loop, Stop& stop) noexcept : Leaf(loop, stop), queue_(queue) {}

   private:
    bool try_now() override { return queue_.try_take(); }
    void begin() noexcept override { queue_.waiting_.push_back(*this); }
    void cancel() noexcept override { ListNode<Await>::unlink(); }
    TurnQueue& queue_;
  };

  // Releases the turn when destroyed.
  class Holder {
   public:
    explicit Holder(TurnQueue& queue) noexcept : queue_(queue) {}
    ~Holder() { queue_.give_up(); }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

   private:
    TurnQueue& queue_;
  };

  bool free() const noexcept { return !taken_; }
  bool try_take() noexcept {
    if (taken_) return false;
    taken_ = true;
    return true;
  }
  void give_up() noexcept {
    Await* next = waiting_.pop_front();
    taken_ = next != nullptr;
    if (next != nullptr) next->complete();
  }

 private:
  bool taken_ = false;
  IntrusiveList<Await> waiting_;
};

}  // namespace aiacc

// CreditGate: how many more bytes of one stream the agent may send to aiaccrun. Without credit the agent does not read
// the ranks' output either, so a terminal that nobody reads fills the ranks' own pipes and then blocks them, as it
// would without aiaccrun.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/task/loop.h"

namespace aiacc::launcher {

class CreditGate {
 public:
  explicit CreditGate(Loop& loop) : opened_(loop) {}

  // Notified once, when there is credit.
  class Waiter : public ListNode<Waiter> {
   public:
    virtual void credit_available() noexcept = 0;

   protected:
    ~Waiter() = default;
  };

  void add(std::uint64_t bytes) noexcept {
    available_ += static_cast<std::int64_t>(bytes);
    notify();
  }
  // The reader is gone: nothing waits for credit any more, and discarding() tells the caller to discard its bytes.
  void discard() noexcept {
    discarding_ = true;
    notify();
  }
  bool discarding() const noexcept { return discarding_; }
  bool open() const noexcept { return discarding_ || available_ > 0; }

  // A piece may exceed the credit: pieces are small, and the next one waits until the credit is positive again.
  void spend(std::size_t bytes) noexcept { available_ -= static_cast<std::int64_t>(bytes); }
  void add(Waiter& waiter) noexcept { waiters_.push_back(waiter); }
  Event::Await wait_open(Stop& stop) noexcept {
    if (open())
      opened_.set();
    else
      opened_.reset();
    return opened_.wait(stop);
  }

 private:
  void notify() noexcept {
    if (!open()) return;
    opened_.set();
    while (open()) {
      Waiter* waiter = waiters_.pop_front();
      if (waiter == nullptr) return;
      waiter->credit_available();  // may spend all of it, and may add itself again
    }
  }

  std::int64_t available_ = 0;
  bool discarding_ = false;
  Event opened_;
  IntrusiveList<Waiter> waiters_;
};

}  // namespace aiacc::launcher

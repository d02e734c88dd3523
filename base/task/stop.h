// Stop: the only mechanism that ends an operation's waits early. A deadline, the death of a peer, an abort of the group
// and a failed sibling all request the operation's Stop; every leaf wait of that operation is registered with it and
// throws the reason. Single-threaded: it belongs to the loop of its operation.
#pragma once

#include <exception>

#include "base/intrusive_list.h"

namespace aiacc {

class Stop {
 public:
  // A wait that must end when the stop is requested. stop() is called once, after the waiter was unlinked; it must not
  // resume a coroutine but post it to its loop (base/task/loop.h).
  class Waiter : public ListNode<Waiter> {
   public:
    virtual void on_stop(const std::exception_ptr& reason) noexcept = 0;

   protected:
    ~Waiter() = default;
  };

  Stop() = default;
  // A child stops when its parent does, but not the reverse. The parent outlives the child.
  explicit Stop(Stop& parent) { link_.attach(*this, parent); }
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;

  bool requested() const noexcept { return reason_ != nullptr; }
  const std::exception_ptr& reason() const noexcept { return reason_; }
  void throw_if_requested() const {
    if (reason_) std::rethrow_exception(reason_);
  }

  // The first reason wins; later requests do nothing.
  void request(std::exception_ptr reason) noexcept {
    if (reason_) return;
    reason_ = std::move(reason);
    while (Waiter* waiter = waiters_.pop_front()) waiter->on_stop(reason_);
  }

  // Registers a wait; the caller has checked that requested() is false.
  void add(Waiter& waiter) noexcept { waiters_.push_back(waiter); }

 private:
  struct Link final : Waiter {
    Stop* child = nullptr;
    void attach(Stop& self, Stop& parent) {
      child = &self;
      if (parent.requested()) {
        self.reason_ = parent.reason_;
      } else {
        parent.add(*this);
      }
    }
    void on_stop(const std::exception_ptr& reason) noexcept override { child->request(reason); }
  };

  std::exception_ptr reason_;
  IntrusiveList<Waiter> waiters_;
  Link link_;
};

}  // namespace aiacc

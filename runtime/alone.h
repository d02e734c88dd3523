// What a rank does by itself: collectives of a group of one, and messages that a rank sends to itself in any group.
#pragma once

#include "base/intrusive_list.h"
#include "base/task/task.h"
#include "collectives/operation.h"

namespace aiacc {

// Collectives of a group of one: copies and scales.
Task<void> run_alone(Operation& operation);

// Messages of a rank to itself, matched by tag in the order of the calls. One for each group.
class Loopback {
 public:
  // A send or a recv whose other end is this rank. The send completes when its bytes were copied.
  Task<void> run(Operation& operation);

 private:
  struct Waiting : ListNode<Waiting> {
    Waiting(Operation& waiting, Event& event) : operation(waiting), met(event) {}
    Operation& operation;
    Event& met;
    bool matched = false;
    std::exception_ptr error;
  };
  Waiting* match(IntrusiveList<Waiting>& others, const Operation& operation);

  IntrusiveList<Waiting> sends_;
  IntrusiveList<Waiting> recvs_;
};

}  // namespace aiacc

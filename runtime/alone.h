// What a rank does by itself: collectives of a group of one, and messages that a rank sends to itself in any group.
#pragma once

#include <cstdint>
#include <exception>
#include <list>
#include <vector>

#include "base/intrusive_list.h"
#include "base/task/task.h"
#include "collectives/operation.h"

namespace aiacc {

// Collectives of a group of one: copies and scales.
Task<void> run_alone(Operation& operation);

// Messages of a rank to itself, matched by tag in the order of the calls. One for each group. A send that nobody has asked
// for yet is copied, and complete: it needs memory and nothing else, like one to another rank of the host.
class Loopback {
 public:
  // A send or a recv whose other end is this rank.
  Task<void> run(Operation& operation);

  // For a receive from any rank.
  bool has_unasked(std::uint32_t tag) const noexcept;
  class Watch : public ListNode<Watch> {  // while it lives, `news` is set by every send that nobody has asked for
   public:
    Watch(Loopback& loopback, Event& news) : news_(news) { loopback.watches_.push_back(*this); }

   private:
    friend class Loopback;
    Event& news_;
  };

 private:
  struct Early {
    std::uint32_t tag;
    std::vector<std::byte> bytes;
  };
  struct Waiting : ListNode<Waiting> {
    Waiting(Operation& waiting, Event& event) : operation(waiting), met(event) {}
    Operation& operation;
    Event& met;
    bool matched = false;
    std::exception_ptr error;
  };

  Task<void> send(Operation& operation);
  Task<void> recv(Operation& operation);
  Waiting* waiting_for(std::uint32_t tag);

  std::list<Early> early_;  // in the order of the sends
  IntrusiveList<Waiting> recvs_;
  IntrusiveList<Watch> watches_;
};

}  // namespace aiacc

// Operations that involve one rank only: collectives of a group of one, and messages of a rank to itself in any group.
#pragma once

#include <cstdint>
#include <exception>
#include <list>
#include <unordered_map>
#include <vector>

#include "base/intrusive_list.h"
#include "base/task/task.h"
#include "collectives/operation.h"
#include "transports/unexpected_observer.h"

namespace aiacc {

// Collectives of a group of one: copies and scales.
Task<void> run_alone(Operation& operation);

// Messages of a rank to itself, matched by tag in call order. Each group has one. A send without a posted receive is
// copied and then complete: it needs only memory, like a send to another rank of the host.
class Loopback {
 public:
  // `observer` hears of sends that no receive waits for.
  explicit Loopback(UnexpectedObserver& observer) : observer_(observer) {}
  // Runs a send or recv whose other end is this rank.
  Task<void> run(Operation& operation);

  // For a receive from any rank: whether a send with this tag waits.
  bool has_unexpected(std::uint32_t tag) const noexcept;

 private:
  struct UnexpectedMessage {
    UnexpectedMessage(Loop& loop, std::size_t length) : bytes(length), copied(loop) {}
    std::vector<std::byte> bytes;
    Event copied;  // set when the bytes were copied, or never will be
    std::exception_ptr error;
  };
  struct Waiting : ListNode<Waiting> {
    Waiting(Operation& waiting, Event& event) : operation(waiting), met(event) {}
    Operation& operation;
    Event& met;
    bool matched = false;
    std::exception_ptr error;
  };
  struct ByTag {
    std::list<UnexpectedMessage> unexpected;  // in order of the sends
    IntrusiveList<Waiting> recvs;             // or these; never both
  };

  Task<void> send(Operation& operation);
  Task<void> recv(Operation& operation);
  void drop_if_empty(std::uint32_t tag) noexcept;

  UnexpectedObserver& observer_;
  std::unordered_map<std::uint32_t, ByTag> tags_;
};

}  // namespace aiacc

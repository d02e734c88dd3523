// SmallQueue: small calls (small.h) that wait as records: for their turn, and the first of them for the other members. One
// coroutine, which lives as long as this object, watches the arrivals while there is a first, and completes whatever is complete:
// so a call costs what it costs in small.h and a few words of memory, however many wait.
//
// While calls wait here, the queue has the team's turn (IntraTeam::turns), so what is called after them comes after them.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>

#include "base/task/scope.h"
#include "collectives/intra/intra_team.h"
#include "collectives/plain_queue.h"

namespace aiacc::intra {

class SmallQueue final : public PlainQueue, private Root::Owner {
 public:
  SmallQueue(IntraTeam& team, PlainQueue::Owner& owner);
  ~SmallQueue() override;

  // For a call that try_small() did not serve or has begun. The caller knows that all calls of the team that are not complete are in
  // this queue.
  bool prepare_to_post(const PlainCall& call, const Buffer& send, const Buffer& recv) noexcept override;
  void post(Item& item) noexcept override;
  bool catch_up() noexcept override;
  bool withdraw(Item& item) noexcept override;

 private:
  bool is_ready(const Item& item) noexcept;
  std::exception_ptr take(const Item& item) noexcept;
  bool advance(int most) noexcept;
  void leave_first() noexcept;
  Task<void> attend();
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  IntraTeam& team_;
  std::uint64_t number_ = 0;  // of the first one's arrival; 0: not published
  // It waits for this member's arrival there; the team's size: for none. At 0, where all have arrived: nobody has looked.
  int missing_ = 0;
  std::uint64_t missing_at_ = 0;
  Event needed_;  // set when there is a first
  Stop closing_;
  std::optional<Stop> watches_;  // while arrivals are awaited
  std::exception_ptr broken_;    // why the coroutine ended
  std::optional<Root> attendant_;
};

}  // namespace aiacc::intra

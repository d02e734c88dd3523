// ShortQueue: collectives of at most an eager message, of a group among hosts with one rank each, that wait as records. The oldest,
// at most kPlaces, go on: each has a place, with its coroutines and its messages. What is called behind them waits for a place, so
// its memory is its record, and its time that of a call in memory that the calls before it have used a moment ago.
//
// Nobody waits for ever for a place: each member goes on with the oldest of its calls that are not complete, so the oldest call of
// all is one that every member goes on with once it has made it. Messages of members that are ahead are unexpected until then,
// and no member is ahead by more than its places, beside what needs no answer.
//
// The order in which calls begin here does not matter: messages are matched by the number of their call, which it had when it was
// made. So operations of the group need not wait for this queue.
#pragma once

#include <memory>
#include <vector>

#include "collectives/plain_queue.h"

namespace aiacc {

class Group;
struct MatchGroup;

class ShortQueue final : public PlainQueue {
 public:
  // A place takes some KB, most of it memory of its coroutines. With 64, a call takes 1.8, 2.1 and 2.3 us with 64, 4,096 and 65,536
  // outstanding (bench/outstanding, two hosts on one machine of two cores), where all that were begun at once took 1.7, 11 and 8.
  static constexpr std::size_t kPlaces = 64;

  // Whether the group is of the kind that it serves.
  static bool serves(const Group& group) noexcept;
  ShortQueue(Group& group, PlainQueue::Owner& owner);
  ~ShortQueue() override;

  bool prepare_to_post(const PlainCall& call, const Buffer& send, const Buffer& recv) noexcept override;
  bool sends() const noexcept override;
  void post(Item& item) noexcept override;
  bool withdraw(Item& item) noexcept override;

 private:
  class Place;

  void begin_those_with_a_place() noexcept;
  void place_free(Place& place, Item& item, std::exception_ptr error) noexcept;
  void tell_mailbox() noexcept;

  Group& group_;
  MatchGroup& match_;
  std::vector<std::unique_ptr<Place>> places_;  // as many as were ever needed at once
  Place* free_ = nullptr;
  std::size_t busy_ = 0;
  bool beginning_ = false;
  bool failed_ = false;  // the group ends soon, and what waits with it
};

}  // namespace aiacc

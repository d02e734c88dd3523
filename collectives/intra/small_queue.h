// SmallQueue: small calls (small.h) that wait, each as a record of a few words without a coroutine: for their turn, and the first of
// them for the other members. One coroutine, which lives as long as this object, watches the arrivals while there is a first, and
// completes whatever is complete: so a call costs what it costs in small.h and a few words of memory, however many wait.
//
// While calls wait here, the queue has the team's turn (IntraTeam::turns), so what is called after them comes after them.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>

#include "base/data/buffer.h"
#include "base/task/scope.h"
#include "collectives/intra/intra_team.h"
#include "collectives/plain_call.h"

namespace aiacc::intra {

class SmallQueue final : private Root::Owner {
 public:
  class Item {
   public:
    // What was called.
    PlainCall plain() const noexcept;
    // The owner's.
    std::uint32_t note() const noexcept { return note_; }
    void set_note(std::uint32_t note) noexcept { note_ = note; }

   protected:
    // For a call that prepare_to_post() admitted.
    Item(const PlainCall& call, const Buffer& send, const Buffer& recv) noexcept;
    ~Item() = default;

   private:
    friend class SmallQueue;
    Item* next_ = nullptr;
    const std::byte* send_;
    std::byte* recv_;
    std::uint32_t count_;
    std::int32_t root_;
    std::uint32_t note_ = 0;
    Collective kind_;
    std::uint8_t type_;
    std::uint8_t op_;
    bool queued_ = false;
  };
  class Owner {
   public:
    // Its result is in its memory, or why it is not. It waits no more. On the lane's thread, from inside any call of the queue:
    // this one must not stop others, resume a coroutine, or make calls on the queue.
    virtual void small_ended(Item& item, std::exception_ptr error) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  SmallQueue(IntraTeam& team, Owner& owner);
  ~SmallQueue();
  SmallQueue(const SmallQueue&) = delete;
  SmallQueue& operator=(const SmallQueue&) = delete;

  // Whether post() can take the call, which try_small() did not serve or has begun. The caller knows that all calls of the team that
  // are not complete are in this queue.
  bool prepare_to_post(const PlainCall& call, const Buffer& send, const Buffer& recv) noexcept;
  // The call waits from now on, or ends inside.
  void post(Item& item) noexcept;
  // It ends without its result, if it has not ended. Others that wait then never end well.
  void withdraw(Item& item) noexcept;

 private:
  void arrive(const Item& item) noexcept;
  bool all_have_arrived() noexcept;
  std::exception_ptr take(const Item& item) noexcept;
  bool advance() noexcept;
  void pop_first() noexcept;
  Task<void> attend();
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  IntraTeam& team_;
  Owner& owner_;
  Item* first_ = nullptr;
  Item* last_ = nullptr;
  std::uint64_t number_ = 0;  // of the first one's arrival; 0: not published
  int missing_ = 0;           // the members before it have arrived there
  Event needed_;              // set when there is a first
  Stop closing_;
  std::optional<Stop> watches_;  // while arrivals are awaited
  std::exception_ptr broken_;    // why the coroutine ended
  std::optional<Root> attendant_;
};

}  // namespace aiacc::intra

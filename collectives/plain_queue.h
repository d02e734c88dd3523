// PlainQueue: plain calls of a team that wait, each as a record of a few words (Item) without a coroutine. The queue owns what the
// few of them that can go on need for it, so a waiting call costs its record, however many wait.
//
//   intra::SmallQueue  small calls of a group on one host (collectives/intra/small_queue.h): the first goes on
//   ShortQueue         calls of a group among hosts with one rank each (runtime/group/short_queue.h): some of the oldest go on
#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include "base/data/buffer.h"
#include "collectives/plain_call.h"

namespace aiacc {

class PlainQueue {
 public:
  class Item {
   public:
    // What was called.
    PlainCall plain() const noexcept {
      return {kind_, static_cast<DType>(type_), static_cast<ReduceOp>(op_), 0, root_, count_};
    }
    // The owner's.
    std::uint32_t note() const noexcept { return note_; }
    void set_note(std::uint32_t note) noexcept { note_ = note; }

    // For its queue.
    enum class State : std::uint8_t { kElsewhere, kWaits, kGoesOn };
    const std::byte* send() const noexcept { return send_; }
    std::byte* recv() const noexcept { return recv_; }
    Item* next = nullptr;  // that waits
    State state() const noexcept { return state_; }
    void set_state(State state) noexcept { state_ = state; }

   protected:
    // For a call that prepare_to_post() admitted.
    Item(const PlainCall& call, const Buffer& send, const Buffer& recv) noexcept
        : send_(send.data),
          recv_(recv.data),
          count_(static_cast<std::uint32_t>(call.count)),
          root_(call.root),
          kind_(call.kind),
          type_(static_cast<std::uint8_t>(call.type)),
          op_(static_cast<std::uint8_t>(call.op)) {}
    ~Item() = default;

   private:
    const std::byte* send_;
    std::byte* recv_;
    std::uint32_t count_;
    std::int32_t root_;
    std::uint32_t note_ = 0;
    Collective kind_;
    std::uint8_t type_;
    std::uint8_t op_;
    State state_ = State::kElsewhere;
  };
  class Owner {
   public:
    // Its result is in its memory, or why it is not. It waits no more. On the lane's thread, from inside any call of the queue:
    // this one must not stop others, resume a coroutine, or make calls on the queue.
    virtual void item_ended(Item& item, std::exception_ptr error) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  virtual ~PlainQueue() = default;
  PlainQueue(const PlainQueue&) = delete;
  PlainQueue& operator=(const PlainQueue&) = delete;

  // Whether post() can take the call.
  virtual bool prepare_to_post(const PlainCall& call, const Buffer& send, const Buffer& recv) noexcept = 0;
  // Whether a call that is posted now may hand the loop something that is to leave at once.
  virtual bool sends() const noexcept { return false; }
  // The call waits from now on, or ends inside.
  virtual void post(Item& item) noexcept = 0;
  // Ends what can end by now, a few calls at the most. Whether none waits any more, or none will end well.
  virtual bool catch_up() noexcept { return first_ == nullptr; }
  // It ends without its result, if it has not ended; others that wait then never end well. True: now, or it is over already;
  // otherwise item_ended() follows.
  virtual bool withdraw(Item& item) noexcept = 0;

 protected:
  // Of a call that Item can hold.
  static bool fits_item(const PlainCall& call, const Buffer& send, const Buffer& recv) noexcept {
    constexpr std::size_t kMostElements = ~std::uint32_t{0};
    return call.count <= kMostElements && send.on_host() && recv.on_host();
  }

  explicit PlainQueue(Owner& owner) noexcept : owner_(owner) {}

  // Those that wait, the oldest first.
  Item* first() const noexcept { return first_; }
  Item* last() const noexcept { return last_; }
  void append(Item& item) noexcept {
    item.set_state(Item::State::kWaits);
    (first_ == nullptr ? first_ : last_->next) = &item;
    last_ = &item;
  }
  Item& pop_first() noexcept {
    Item& item = *first_;
    first_ = item.next;
    if (first_ == nullptr) last_ = nullptr;
    item.next = nullptr;
    item.set_state(Item::State::kElsewhere);
    return item;
  }
  // One that waits. Calls end from the oldest on, so the search is short.
  void remove(Item& item) noexcept {
    if (first_ == &item) {
      pop_first();
      return;
    }
    Item* before = first_;
    while (before->next != &item) before = before->next;
    before->next = item.next;
    if (last_ == &item) last_ = before;
    item.next = nullptr;
    item.set_state(Item::State::kElsewhere);
  }
  void ended(Item& item, std::exception_ptr error) noexcept { owner_.item_ended(item, std::move(error)); }

 private:
  Owner& owner_;
  Item* first_ = nullptr;
  Item* last_ = nullptr;
};

}  // namespace aiacc

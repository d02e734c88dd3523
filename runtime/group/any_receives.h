// AnyReceives: the receives from any rank that wait in a group, by tag and in the order of the calls. An unexpected message wakes
// the oldest of its tag and no other one. That one looks for a message; when it has taken one it wakes the next, which
// looks once: so an arrival costs two looks, however many receives wait.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/intrusive_list.h"
#include "base/task/loop.h"
#include "transports/unexpected_observer.h"

namespace aiacc {

class AnyReceives final : public UnexpectedObserver {
 public:
  // The place of one receive in the queue of its tag.
  class Place : private ListNode<Place> {
   public:
    Place(AnyReceives& queues, Loop& loop, std::uint32_t tag) : queues_(queues), tag_(tag), news_(loop) {
      queues_.by_tag_[tag].push_back(*this);
    }
    ~Place() { leave(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    // Whether it is its turn to look.
    bool is_first() const noexcept { return &queues_.by_tag_.find(tag_)->second.front() == this; }
    void looked() noexcept { ++queues_.looks_; }
    Event::Await wait(Stop& stop) noexcept {
      news_.reset();
      return news_.wait(stop);
    }
    std::exception_ptr failed() const noexcept { return failed_; }
    // It has its message, or waits no more: it is the next one's turn.
    void leave() noexcept {
      if (!linked()) return;
      unlink();
      const auto its = queues_.by_tag_.find(tag_);
      if (its->second.empty()) {
        queues_.by_tag_.erase(its);
      } else {
        its->second.front().news_.set();
      }
    }

   private:
    friend class AnyReceives;
    friend class IntrusiveList<Place>;
    AnyReceives& queues_;
    std::uint32_t tag_;
    Event news_;
    std::exception_ptr failed_;
  };

  void unexpected_message(std::uint32_t tag) noexcept override {
    if (const auto its = by_tag_.find(tag); its != by_tag_.end()) its->second.front().news_.set();
  }
  void source_failed(std::exception_ptr error) noexcept override {
    for (auto& [tag, waiting] : by_tag_) {
      waiting.for_each([&](Place& place) {
        place.failed_ = error;
        place.news_.set();
      });
    }
  }
  // How often a receive has looked for a message, ever: for tests.
  std::uint64_t looks() const noexcept { return looks_; }

 private:
  std::unordered_map<std::uint32_t, IntrusiveList<Place>> by_tag_;
  std::uint64_t looks_ = 0;
};

}  // namespace aiacc

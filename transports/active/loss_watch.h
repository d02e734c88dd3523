// LossWatch: notices messages that a library has lost with a connection of which it tells neither end, where messages of a class come in
// their order. The sender says how many messages there are, a while after the last one and then at longer and longer intervals; the
// receiver's path is broken when it has lacked the same message for as long as the limit. Not here: what is lacking (Link::gaps()).
#pragma once

#include "base/task/loop.h"
#include "transports/active/frame.h"

namespace aiacc::active {

class LossWatch final {
 public:
  class Owner {
   public:
    virtual void say_counts() noexcept = 0;
    // Of each class the message that is lacking, from 1; 0: none is.
    virtual Counts gaps() const noexcept = 0;
    virtual void messages_lost() noexcept = 0;

   protected:
    ~Owner() = default;
  };

  // `limit` zero: it does nothing. The loop and the owner outlive it.
  LossWatch(Loop& loop, Owner& owner, Duration limit) noexcept : loop_(loop), owner_(owner), limit_(limit) {}

  // This rank has sent a message.
  void sent() noexcept;
  // Something of the peer's may be lacking.
  void look() noexcept;
  // The peer needs to hear of no counts any more.
  void stop_counting() noexcept { counting_.disarm(); }
  void stop() noexcept {
    counting_.disarm();
    looking_.disarm();
  }

 private:
  static constexpr int kTimes = 6;  // that counts are said again
  static constexpr int kLooks = 4;  // in the limit
  struct Alarm final : Timer {
    Alarm(LossWatch& of, void (LossWatch::*what)() noexcept) : watch(of), rings(what) {}
    void expired() noexcept override { (watch.*rings)(); }
    LossWatch& watch;
    void (LossWatch::*rings)() noexcept;
  };
  void count() noexcept;
  void look_again() noexcept;

  Loop& loop_;
  Owner& owner_;
  const Duration limit_;
  Alarm counting_{*this, &LossWatch::count};
  Alarm looking_{*this, &LossWatch::look_again};
  int said_ = 0;      // counts since the last message
  Counts missing_{};  // gaps() at the last look that found others
  int looks_ = 0;     // that found the same since
};

}  // namespace aiacc::active

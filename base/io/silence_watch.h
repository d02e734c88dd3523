// SilenceWatch: breaks a TCP connection that owes bytes to a host of which nothing is heard any more. Keepalives, which break an
// idle one, rest while bytes are under way; the kernel then tries for a quarter of an hour. TCP_USER_TIMEOUT would not do: it
// also breaks a connection to a process that does not read for a while, whose host answers all the time.
//
// Silence is counted in looks and not by the clock, so that a process that was itself stopped does not hold it for the other's.
#pragma once

#include "base/io/real_loop.h"

namespace aiacc::io {

class SilenceWatch final : private Timer {
 public:
  class Owner {
   public:
    virtual void fell_silent() noexcept = 0;  // once

   protected:
    ~Owner() = default;
  };

  // `descriptor` is the owner's. After `limit` without a word, or a look later, the owner is told.
  SilenceWatch(RealLoop& loop, int descriptor, Duration limit, Owner& owner) noexcept
      : loop_(loop), descriptor_(descriptor), interval_(limit / kLooks), owner_(owner) {}

  // Bytes were written. Costs nothing while the watch runs, which it does until all were delivered.
  void wrote() {
    if (!armed()) begin();
  }

 private:
  static constexpr int kLooks = 3;

  void begin();
  void expired() noexcept override;

  RealLoop& loop_;
  int descriptor_;
  Duration interval_;
  Owner& owner_;
  int silent_ = 0;  // looks that found no answer since the one before
};

}  // namespace aiacc::io

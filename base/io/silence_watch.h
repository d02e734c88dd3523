// SilenceWatch: breaks a TCP connection with unacknowledged bytes to a host that no longer answers. Keepalives break an
// idle connection, but the kernel sends none while bytes are unacknowledged; it then retransmits for a quarter of an
// hour. TCP_USER_TIMEOUT is not suitable: it also breaks a connection to a process that does not read for a while
// although its host answers all the time.
//
// Silence is counted in checks instead of time, so that a process that was itself stopped does not mistake its own
// pause for the other's silence.
#pragma once

#include "base/io/real_loop.h"

namespace aiacc::io {

class SilenceWatch final : private Timer {
 public:
  class Owner {
   public:
    virtual void silence_detected() noexcept = 0;  // called once

   protected:
    ~Owner() = default;
  };

  // The owner keeps `descriptor`. It is notified after a silence of `limit`, or at the next check.
  SilenceWatch(RealLoop& loop, int descriptor, Duration limit, Owner& owner) noexcept
      : loop_(loop), descriptor_(descriptor), interval_(limit / kChecks), owner_(owner) {}

  // Bytes were written. Costs nothing while the watch runs, that is, until all bytes were acknowledged.
  void bytes_written() {
    if (!armed()) begin();
  }

 private:
  static constexpr int kChecks = 3;

  void begin();
  void expired() noexcept override;

  RealLoop& loop_;
  int descriptor_;
  Duration interval_;
  Owner& owner_;
  int silent_ = 0;  // successive checks without an answer
};

}  // namespace aiacc::io

// LatencyUse: whether a rank has begun an operation of the latency class (MessagePort::note_latency()) of late.
#pragma once

#include "base/time.h"

namespace aiacc {

class LatencyUse {
 public:
  static constexpr Duration kStays = std::chrono::seconds(1);
  // The limit of delay (DelayWindow) of bulk and background meanwhile, unless they have one of their own.
  static constexpr Duration kDelay = std::chrono::milliseconds(1);

  void note(Instant now) noexcept {
    in_use_ = true;
    noted_ = now;
  }
  // `now` is asked for only where that matters.
  template <typename Now>
  bool in_use(Now now) noexcept {
    in_use_ = in_use_ && now() - noted_ < kStays;
    return in_use_;
  }

 private:
  bool in_use_ = false;
  Instant noted_{};
};

}  // namespace aiacc

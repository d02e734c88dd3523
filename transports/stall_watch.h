// StallWatch: the deadline of an operation over messages. While the operation lasts it asks now and then who holds it up,
// so that the sentence of a timeout names that rank and not just the neighbour. One timer an operation; the intervals
// double, and it asks once more shortly before the end.
#pragma once

#include <cstdint>
#include <string>

#include "base/task/loop.h"
#include "base/view.h"
#include "transports/mailbox.h"

namespace aiacc {

// When to ask: 250 ms after the beginning, then after twice as long each time, and once more shortly before the deadline.
class StallTimes {
 public:
  static constexpr Duration kFirstLook = std::chrono::milliseconds(250);
  static constexpr Duration kLastLook = std::chrono::seconds(1);  // before the deadline

  StallTimes(Instant began, Instant deadline) noexcept : began_(began), deadline_(deadline) {}

  // The next time after `now`; the deadline when there is nothing to ask before.
  Instant next(Instant now) noexcept;

 private:
  Instant began_;
  Instant deadline_;
  Duration interval_ = kFirstLook;
};

class StallWatch final : private Timer {
 public:
  // Requests `stop` with kTimeout at `deadline`; `call` describes the operation.
  StallWatch(Mailbox& mailbox, std::uint64_t group, std::uint64_t sequence, Instant deadline, std::string call,
             Stop& stop)
      : mailbox_(mailbox),
        group_(group),
        sequence_(sequence),
        began_(mailbox.loop().now()),
        deadline_(deadline),
        times_(began_, deadline),
        call_(std::move(call)),
        stop_(stop) {
    arm();
  }

 private:
  void arm();
  void expired() noexcept override;

  Mailbox& mailbox_;
  std::uint64_t group_;
  std::uint64_t sequence_;
  Instant began_;
  Instant deadline_;
  StallTimes times_;
  std::string call_;
  Stop& stop_;
};

}  // namespace aiacc

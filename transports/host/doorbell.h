// Doorbell: wakes a rank that is blocked in its loop when another rank has stored a flag. It is a datagram socket with
// a random abstract name (no file; it disappears with its owner) that the loop watches. To ring, a peer sends one
// datagram to the name that the sleeper wrote into its control line. Any process of the host can ring; the only effect
// is one extra check of the flags. The datagram is read before its owner blocks again, not when it wakes up: that would be a quarter
// of the time from the ring until it has looked at its flags.
#pragma once

#include <array>
#include <cstdint>

#include "base/fd.h"
#include "base/io/real_loop.h"

namespace aiacc {

class Doorbell final : private io::Watch {
 public:
  using Name = std::array<std::uint64_t, 2>;

  explicit Doorbell(io::RealLoop& loop);

  const Name& name() const noexcept { return name_; }
  // False if the other one may not wake up from it.
  bool ring(const Name& other) noexcept;
  // Before its owner blocks: takes what has come. False if there may be more.
  bool drain() noexcept;

 private:
  void ready(Ready) noexcept override { rung_ = true; }

  bool rung_ = false;  // since the last drain()
  Fd socket_;
  Name name_{};
};

}  // namespace aiacc

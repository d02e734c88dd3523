// Doorbell: wakes a rank that is blocked in its loop when another rank has stored a flag. It is a datagram socket with
// a random abstract name (no file; it disappears with its owner) that the loop watches. To ring, a peer sends one
// datagram to the name that the sleeper wrote into its control line. Any process of the host can ring; the only effect
// is one extra check of the flags.
#pragma once

#include <array>
#include <cstdint>

#include "base/fd.h"
#include "base/io/real_loop.h"

namespace aiacc {

class Doorbell final : private io::Watch, private Job {
 public:
  using Name = std::array<std::uint64_t, 2>;

  explicit Doorbell(io::RealLoop& loop);

  const Name& name() const noexcept { return name_; }
  // False if the other one may not wake up from it.
  bool ring(const Name& other) noexcept;

 private:
  void ready(Ready) noexcept override { drain(); }
  void run() noexcept override { drain(); }
  void drain() noexcept;

  io::RealLoop& loop_;
  Fd socket_;
  Name name_{};
};

}  // namespace aiacc

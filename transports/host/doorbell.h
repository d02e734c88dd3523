// Doorbell: how a rank that blocks in its loop is woken by another rank's store. A datagram socket with a random abstract
// name (no file; gone with its owner), watched by the loop; ringing is one datagram to the name that the sleeper left in
// its control line. Anybody on the host may ring: that costs a look at the flags and does nothing else.
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
  void ring(const Name& other) noexcept;

 private:
  void ready(Ready) noexcept override;

  Fd socket_;
  Name name_{};
};

}  // namespace aiacc

// A reserved TCP port: bound, never listening. Another socket with SO_REUSEADDR may still listen there.
#pragma once

#include <cstdint>

#include "base/fd.h"

namespace aiacc::io {

class BoundPort {
 public:
  // A free port, on all addresses of this host. Throws kSystem.
  BoundPort();
  std::uint16_t number() const noexcept { return number_; }

 private:
  Fd socket_;
  std::uint16_t number_ = 0;
};

}  // namespace aiacc::io

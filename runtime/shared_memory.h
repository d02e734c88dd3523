// SharedMemory: memory of a rank that the ranks of its host share (RealContext::allocate).
#pragma once

#include <cstddef>

#include "transports/host/host_domain.h"

namespace aiacc {

struct SharedMemory {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  HostRange range;
};

}  // namespace aiacc

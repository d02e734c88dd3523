// Memory: the buffers of the measurement, the size of the caches, and the memory bandwidth for comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tools/perf/world.h"

namespace aiacc::tools {

// Memory from aiacc_mem_alloc, or private memory of this process; its pages are touched.
class PerfBuffer {
 public:
  PerfBuffer(std::size_t bytes, bool shared);
  std::byte* data() const noexcept { return data_.get(); }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Free {
    bool shared;
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_;
};

// The largest cache of the first processing unit, in bytes; 32 MiB if /sys does not say.
std::size_t largest_cache();

// Bytes per second that all ranks of the host together read and write in arrays larger than the caches; the best of
// several passes. Copy is b = a, triad is a = b + s * c (McCalpin's STREAM); writes count once.
struct MemoryBandwidth {
  double copy_gbs = 0;
  double triad_gbs = 0;
  std::size_t array_bytes = 0;  // of each of a rank's three arrays
  static constexpr int kPasses = 5;
  double best_gbs() const noexcept { return copy_gbs > triad_gbs ? copy_gbs : triad_gbs; }
};

// Collective over the world, whose ranks share a host.
MemoryBandwidth measure_memory(const World& world);

}  // namespace aiacc::tools

// Memory: the buffers that are measured, the size of the caches, and the bandwidth that everything is compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tools/perf/world.h"

namespace aiacc::tools {

// From aiacc_mem_alloc, or of this process alone; its pages are touched.
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

// The largest cache of the first processing unit, in bytes; 32 MiB if /sys does not tell.
std::size_t largest_cache();

// Bytes that are read and written a second, by all ranks of the host at once, in arrays beyond the caches; the best of several
// passes. Copy is b = a, triad is a = b + s * c (McCalpin's STREAM); writes count once.
struct MemoryBandwidth {
  double copy_gbs = 0;
  double triad_gbs = 0;
  std::size_t array_bytes = 0;  // of each of the three of a rank
  static constexpr int kPasses = 5;
  double best_gbs() const noexcept { return copy_gbs > triad_gbs ? copy_gbs : triad_gbs; }
};

// Collective over the world, whose ranks share a host.
MemoryBandwidth measure_memory(const World& world);

}  // namespace aiacc::tools

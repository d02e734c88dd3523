#include "tools/perf/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string>

#include "base/quantity.h"

namespace aiacc::tools {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMostArray = std::size_t{256} << 20;
constexpr std::size_t kLeastArray = std::size_t{16} << 20;  // longer than the caches of one core
// An array of each rank, together: a thousand ranks fit into the memory.
constexpr std::size_t kEnoughOfHost = std::size_t{1} << 30;

constexpr std::size_t array_bytes_of(std::size_t ranks, std::size_t largest_cache) {
  return std::clamp(4 * largest_cache / ranks, std::min(kLeastArray, kEnoughOfHost / ranks), kMostArray);
}
static_assert(array_bytes_of(2, std::size_t{32} << 20) == std::size_t{64} << 20);
static_assert(array_bytes_of(1000, std::size_t{32} << 20) * 1000 <= kEnoughOfHost);

std::byte* allocate(std::size_t bytes, bool shared) {
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  void* memory = nullptr;
  if (shared) {
    require(aiacc_mem_alloc(AIACC_NULL, rounded, &memory));
  } else {
    memory = std::aligned_alloc(kPage, rounded);
    if (memory == nullptr) throw std::bad_alloc();
  }
  std::memset(memory, 0, rounded);
  return static_cast<std::byte*>(memory);
}

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Gigabytes per second for `bytes` of each rank, in the time of the slowest rank.
template <class Pass>
double best_rate(const World& world, std::size_t bytes, Pass pass) {
  double best_s = 1e30;
  for (int i = 0; i < MemoryBandwidth::kPasses; ++i) {
    world.barrier();
    const double began = now_s();
    pass();
    double took = now_s() - began;
    world.max_over_ranks({&took, 1});
    best_s = std::min(best_s, took);
  }
  return static_cast<double>(bytes) * world.size() / best_s * 1e-9;
}

}  // namespace

PerfBuffer::PerfBuffer(std::size_t bytes, bool shared) : data_(allocate(bytes, shared), Free{shared}), bytes_(bytes) {}

void PerfBuffer::Free::operator()(std::byte* memory) const noexcept {
  if (shared) {
    aiacc_mem_free(memory);
  } else {
    std::free(memory);
  }
}

std::size_t largest_cache() {
  std::size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream in(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    std::string size;
    if (in >> size) largest = std::max<std::size_t>(largest, parse_bytes(size).value_or(0));
  }
  return largest > 0 ? largest : std::size_t{32} << 20;
}

MemoryBandwidth measure_memory(const World& world) {
  MemoryBandwidth found;
  double ranks = world.local_size();  // of the host that has most
  world.max_over_ranks({&ranks, 1});
  double bytes = static_cast<double>(array_bytes_of(static_cast<std::size_t>(ranks), largest_cache()));
  world.max_over_ranks({&bytes, 1});
  found.array_bytes = static_cast<std::size_t>(bytes) / kPage * kPage;
  const PerfBuffer a(found.array_bytes, false), b(found.array_bytes, false), c(found.array_bytes, false);
  found.copy_gbs = best_rate(world, 2 * found.array_bytes, [&] { std::memcpy(b.data(), a.data(), found.array_bytes); });
  auto* const to = reinterpret_cast<double*>(a.data());
  const auto* const x = reinterpret_cast<const double*>(b.data());
  const auto* const y = reinterpret_cast<const double*>(c.data());
  found.triad_gbs = best_rate(world, 3 * found.array_bytes, [&] {
    for (std::size_t i = 0; i < found.array_bytes / sizeof(double); ++i) to[i] = x[i] + 3.0 * y[i];
  });
  return found;
}

}  // namespace aiacc::tools

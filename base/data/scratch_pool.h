// ScratchPool: memory of one kind that operations borrow for as long as they run. Returned memory is kept, so that the
// next operation needs no new pages (faulting in a quarter MiB costs 60 µs, as long as sending it). For one thread at a
// time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "base/data/buffer.h"

namespace aiacc {

// Allocates memory of one kind and device.
class MemoryAllocator {
 public:
  // Throws std::bad_alloc, or an Error with a sentence.
  virtual Buffer allocate(std::size_t bytes) = 0;
  virtual void free(const Buffer& memory) noexcept = 0;

 protected:
  ~MemoryAllocator() = default;
};

// Private pages of the process.
class HostMemory final : public MemoryAllocator {
 public:
  Buffer allocate(std::size_t bytes) override { return {static_cast<std::byte*>(::operator new(bytes)), bytes}; }
  void free(const Buffer& memory) noexcept override { ::operator delete(memory.data); }
};

// Sizes of scratch memory: class 4e + q is of (4 + q) << e granules of 16 bytes.
inline constexpr std::size_t kScratchGranule = 16;
constexpr std::size_t scratch_class_bytes(std::size_t size_class) noexcept {
  return ((4 + size_class % 4) << size_class / 4) * kScratchGranule;
}
// The smallest class of at least so many bytes.
constexpr std::size_t scratch_class(std::size_t bytes) noexcept {
  const std::size_t granules = std::max<std::size_t>((bytes + kScratchGranule - 1) / kScratchGranule, 4);
  const auto exponent = static_cast<std::size_t>(std::bit_width(granules)) - 3;
  const std::size_t quarters = (granules + (std::size_t{1} << exponent) - 1) >> exponent;  // 4 .. 8
  return 4 * exponent + quarters - 4;
}

// Sizes are rounded up to one of four in each power of two, and each has a stack of its own: taking and giving back cost
// O(1), however much is kept.
class ScratchPool {
 public:
  static constexpr std::size_t kKeptBytes = 8 << 20;

  explicit ScratchPool(MemoryAllocator& allocator) noexcept : allocator_(allocator) {}
  ~ScratchPool() {
    for (const std::vector<Buffer>& stack : kept_) {
      for (const Buffer& memory : stack) allocator_.free(memory);
    }
  }
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  // At least `bytes` bytes with any content: the smallest kept buffer that is large enough, or a new one.
  Buffer take(std::size_t bytes) {
    if (bytes == 0) return {};
    if (bytes > kKeptBytes) return allocator_.allocate(bytes);
    const std::size_t smallest = scratch_class(bytes);
    for (std::size_t word = smallest / 64; word < filled_.size(); ++word) {
      const std::uint64_t wanted = word == smallest / 64 ? ~std::uint64_t{0} << smallest % 64 : ~std::uint64_t{0};
      if ((filled_[word] & wanted) == 0) continue;
      const std::size_t found = word * 64 + static_cast<std::size_t>(std::countr_zero(filled_[word] & wanted));
      std::vector<Buffer>& stack = kept_[found];
      const Buffer memory = stack.back();
      stack.pop_back();
      if (stack.empty()) filled_[word] &= ~(std::uint64_t{1} << found % 64);
      kept_bytes_ -= memory.bytes;
      return memory;
    }
    return allocator_.allocate(scratch_class_bytes(smallest));
  }

  void give_back(const Buffer& memory) noexcept {
    if (memory.bytes == 0) return;
    if (memory.bytes > kKeptBytes - kept_bytes_) return allocator_.free(memory);
    const std::size_t its = scratch_class(memory.bytes);
    try {
      kept_[its].push_back(memory);
    } catch (const std::bad_alloc&) {
      return allocator_.free(memory);
    }
    filled_[its / 64] |= std::uint64_t{1} << its % 64;
    kept_bytes_ += memory.bytes;
  }

 private:
  static constexpr std::size_t kClasses = scratch_class(kKeptBytes) + 1;

  MemoryAllocator& allocator_;
  std::array<std::vector<Buffer>, kClasses> kept_;
  std::array<std::uint64_t, (kClasses + 63) / 64> filled_{};  // a bit for each class with something in it
  std::size_t kept_bytes_ = 0;
};

}  // namespace aiacc

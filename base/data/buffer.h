// Buffer: one description of memory that an operation reads or writes, wherever it lives. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aiacc {

enum class MemoryKind : std::uint8_t { kHost, kCuda };

struct Buffer {
  std::byte* data = nullptr;  // null with bytes > 0 only in byte-free simulation
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::kHost;
  std::int16_t device = 0;         // of kCuda
  std::uint64_t registration = 0;  // handle of a registration with a transport; 0: none

  Buffer slice(std::size_t offset, std::size_t length) const noexcept {
    Buffer part = *this;
    part.data = data == nullptr ? nullptr : data + offset;
    part.bytes = length;
    return part;
  }
};

}  // namespace aiacc

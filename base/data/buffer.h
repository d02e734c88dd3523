// Buffer: describes memory of any kind that an operation reads or writes. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aiacc {

enum class MemoryKind : std::uint8_t { kHost, kCuda };

struct Buffer {
  std::byte* data = nullptr;  // null with bytes > 0 only in byte-free simulation
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::kHost;
  std::int16_t device = 0;         // for kCuda
  std::uint64_t registration = 0;  // handle of a registration with a transport; 0: none

  bool on_host() const noexcept { return kind == MemoryKind::kHost; }
  Buffer slice(std::size_t offset, std::size_t length) const noexcept {
    Buffer part = *this;
    part.data = data == nullptr ? nullptr : data + offset;
    part.bytes = length;
    return part;
  }
};

}  // namespace aiacc

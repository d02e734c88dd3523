// Bytes as libsodium takes them.
#pragma once

#include <cstddef>
#include <span>

namespace aiacc::wire {

inline unsigned char* raw(std::span<std::byte> bytes) noexcept {
  return reinterpret_cast<unsigned char*>(bytes.data());
}
inline const unsigned char* raw(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace aiacc::wire

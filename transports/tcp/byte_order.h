// Structures whose members are the fields of the wire, on a machine of the same byte order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

namespace aiacc::tcp {

template <class T>
void swap_bytes(T& value) noexcept {
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  std::reverse(bytes, bytes + sizeof value);
}

// From this machine's byte order to the wire's, or back.
template <class... Fields>
void to_wire_order([[maybe_unused]] Fields&... fields) noexcept {
  if constexpr (std::endian::native == std::endian::big) (swap_bytes(fields), ...);
}

}  // namespace aiacc::tcp

// Sized structs of the ABI, which grow at their ends. A caller compiled with an older header passes a smaller struct;
// the missing members count as zero. A caller compiled with a newer header passes a larger one, which is accepted if
// the members unknown here are zero.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace aiacc::abi {

// A copy of `*given`. `first` is the size of the struct in its first version: no caller has a smaller one.
template <class Attr>
Attr read_sized(const Attr& given, std::size_t first, const char* name) {
  static_assert(std::is_trivially_copyable_v<Attr>);
  std::size_t size;
  std::memcpy(&size, &given, sizeof size);  // the first member
  // A limit, because an uninitialised size may be huge.
  constexpr std::size_t kMost = 4096;
  if (size < first || size > kMost) {
    throw Error(Code::kInvalidArgument, fmt::format("size in {} is {}: set it to sizeof({}), which is {} here", name,
                                                    size, name, sizeof(Attr)));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(&given);
  for (std::size_t at = sizeof(Attr); at < size; ++at) {
    if (bytes[at] == 0) continue;
    throw Error(
        Code::kUnsupported,
        fmt::format("byte {} of {} ({} bytes) is set, and this library knows {} bytes of it: it is older than the "
                    "header that the program was compiled with",
                    at, name, size, sizeof(Attr)));
  }
  Attr known{};
  std::memcpy(&known, &given, std::min(size, sizeof known));
  return known;
}

}  // namespace aiacc::abi

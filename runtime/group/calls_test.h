// Calls and buffers as the tests of groups write them. For tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/data/buffer.h"
#include "collectives/operation.h"

namespace aiacc {

inline Call call_of(Collective kind, std::size_t count, int root = 0) {
  Call call;
  call.kind = kind;
  call.count = count;
  call.root = root;
  return call;
}

// A send to `other`, or a receive from it, of `count` elements.
inline Call message_of(Collective kind, int other, std::uint32_t tag = 0, std::size_t count = 1) {
  Call call = call_of(kind, count, other);
  call.tag = tag;
  return call;
}

template <typename T>
Buffer buffer_of(std::vector<T>& data) {
  return Buffer{reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(T)};
}

}  // namespace aiacc

// Allocators for secrets. Wiping: memory is wiped when it is freed; for bytes that a secret passes through. Hidden:
// memory is also excluded from core dumps and, within the limit of locked memory, from swap; each allocation takes
// pages of its own, so it is for the few places where a secret is kept.
#pragma once

#include <cstddef>
#include <new>
#include <string>

namespace aiacc::wire {

void wipe(void* memory, std::size_t bytes) noexcept;
// Throws bad_alloc.
void* allocate_hidden(std::size_t bytes);
void free_hidden(void* memory, std::size_t bytes) noexcept;

template <class T>
struct Wiping {
  using value_type = T;
  Wiping() = default;
  template <class U>
  Wiping(const Wiping<U>&) noexcept {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T)));  // containers check for overflow
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    wipe(memory, count * sizeof(T));
    ::operator delete(memory);
  }
  bool operator==(const Wiping&) const noexcept { return true; }
};

template <class T>
struct Hidden {
  using value_type = T;
  Hidden() = default;
  template <class U>
  Hidden(const Hidden<U>&) noexcept {}
  T* allocate(std::size_t count) { return static_cast<T*>(allocate_hidden(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t count) noexcept { free_hidden(memory, count * sizeof(T)); }
  bool operator==(const Hidden&) const noexcept { return true; }
};

// A secret string in messages. Strings below 16 characters are stored inline and not hidden, but no secret is that
// short.
using HiddenText = std::basic_string<char, std::char_traits<char>, Hidden<char>>;

}  // namespace aiacc::wire

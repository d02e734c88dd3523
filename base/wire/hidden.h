// Memory for what nobody else may know. Wiping: an allocator whose memory is wiped when it is given back, for bytes that a
// secret passes through. Hidden: one whose memory is besides in no core dump and, as far as the limit of locked memory goes, in
// no swap; each piece takes pages of its own, so it is for the few places where a secret stays.
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
    return static_cast<T*>(::operator new(count * sizeof(T)));  // containers check the product
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

// A string in messages that is a secret. Fewer than 16 characters are not hidden: no secret is so short.
using HiddenText = std::basic_string<char, std::char_traits<char>, Hidden<char>>;

}  // namespace aiacc::wire

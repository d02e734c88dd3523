// Hints that move a cache line towards this core before it is used. They change nothing but time.
#pragma once

namespace aiacc {

// Will be read soon.
inline void prefetch(const void* line) noexcept { __builtin_prefetch(line, 0, 3); }

// Will be written soon: takes the line from the other cores that have it. For x86-64 without further flags the compiler's own
// builtin asks for a line to read.
inline void prefetch_for_write(void* line) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1, 3);
#endif
}

}  // namespace aiacc

// What a spinning loop does between two looks: tells the core that it waits, so that its sibling thread runs faster.
#pragma once

namespace aiacc {

#if defined(__x86_64__)
inline void cpu_relax() noexcept { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
inline void cpu_relax() noexcept { asm volatile("isb" ::: "memory"); }
#else
inline void cpu_relax() noexcept { asm volatile("" ::: "memory"); }
#endif

}  // namespace aiacc

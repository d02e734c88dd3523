// Called by a spinning loop between two polls: tells the core that it waits, so that the sibling hyperthread runs
// faster.
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

// What a thread that polls does between two polls.
#pragma once

#include <sched.h>

namespace aiacc {

// Tells the core that it waits, so that the sibling hyperthread runs faster.
#if defined(__x86_64__)
inline void cpu_relax() noexcept { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
inline void cpu_relax() noexcept { asm volatile("isb" ::: "memory"); }
#else
inline void cpu_relax() noexcept { asm volatile("" ::: "memory"); }
#endif

// Gives the core to another thread that could run on it, if there is one: for as long as the scheduler lets that one run.
inline void yield_core() noexcept { sched_yield(); }

}  // namespace aiacc

// The two halves of an asymmetric fence between processes (membarrier(2)). Of two threads that each store one word and then load
// the other's, at least one sees the other's store if one has fence_for_all() between its store and its load and the other
// light_fence(). So what happens often costs nothing, and what happens seldom pays for both: a system call that interrupts each
// processor on which a registered process runs.
#pragma once

#include <atomic>

namespace aiacc {

// Registers this process, so that fence_for_all() of any process applies to it. False: the system has no such fence, or forbids it.
// A child process is not registered.
bool register_for_fences() noexcept;

// A full fence in this thread, and in each running thread of all registered processes. False: the system refuses, and nothing was
// fenced.
bool fence_for_all() noexcept;

// Keeps the compiler from reordering; the processor is fenced by fence_for_all().
inline void light_fence() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }

}  // namespace aiacc

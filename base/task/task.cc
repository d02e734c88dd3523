#include "base/task/task.h"

namespace aiacc {
namespace {

// Where the running resume() of this thread looks for what comes next. One level of resume() is one slot; a nested one
// (a root started from inside a coroutine) has its own.
thread_local std::coroutine_handle<>* next_slot = nullptr;

struct SlotGuard {
  explicit SlotGuard(std::coroutine_handle<>* slot) noexcept : outer(std::exchange(next_slot, slot)) {}
  ~SlotGuard() { next_slot = outer; }
  std::coroutine_handle<>* outer;
};

}  // namespace

void resume(std::coroutine_handle<> coroutine) {
  std::coroutine_handle<> slot = coroutine;
  SlotGuard guard(&slot);
  while (slot) std::exchange(slot, {}).resume();
}

namespace task_detail {

void continue_with(std::coroutine_handle<> continuation) noexcept {
  if (next_slot == nullptr || *next_slot) std::terminate();  // resumed behind resume()'s back
  *next_slot = continuation;
}

}  // namespace task_detail
}  // namespace aiacc

#include "base/task/task.h"

namespace aiacc {
namespace {

// The coroutine that the running resume() of this thread continues with. Each resume() has a slot of its own, also a
// nested one (a root started from inside a coroutine).
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
  if (next_slot == nullptr || *next_slot) std::terminate();  // the coroutine was resumed without resume()
  *next_slot = continuation;
}

}  // namespace task_detail
}  // namespace aiacc

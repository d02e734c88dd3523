// Task<T>: a coroutine that is an operation or a part of one. Lazy, awaited exactly once, by one owner.
//
// Awaiting starts the child inline: a child that completes without suspending costs no scheduling at all. A child that
// suspended resumes its parent through the trampoline (resume() below): the finishing coroutine names the next one and
// returns, so a chain of any length completes in constant stack, at -O0 and under sanitizers too.
//
// Rules, some of them because of g++ 12:
// - name temporaries that have destructors before a `co_await` expression;
// - a coroutine's reference parameters must outlive it: the caller awaits in the same full scope or moves values in;
// - lambdas that are coroutines capture nothing; pass what they need as parameters.
#pragma once

#include <concepts>
#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/task/frame_pool.h"

namespace aiacc {

// Resumes `coroutine` and then the continuations that completions name, until there is none.
// Code outside this folder must resume coroutines through this call only.
void resume(std::coroutine_handle<> coroutine);

namespace task_detail {

// Names the coroutine that the running resume() continues with.
void continue_with(std::coroutine_handle<> continuation) noexcept;

struct PromiseBase {
  std::coroutine_handle<> continuation;
  std::exception_ptr error;

  static void* operator new(std::size_t bytes) { return FramePool::allocate(bytes); }
  static void operator delete(void* frame) noexcept { FramePool::release(frame); }

  std::suspend_always initial_suspend() const noexcept { return {}; }

  struct FinalAwaiter {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> done) const noexcept {
      if (done.promise().continuation) continue_with(done.promise().continuation);
    }
    void await_resume() const noexcept {}
  };
  FinalAwaiter final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { error = std::current_exception(); }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;
  template <class U>
  requires std::convertible_to<U, T>
  void return_value(U&& result) { value.emplace(std::forward<U>(result)); }
  T take() {
    if (error) std::rethrow_exception(error);
    return std::move(*value);
  }
};

template <>
struct Promise<void> : PromiseBase {
  void return_void() const noexcept {}
  void take() const {
    if (error) std::rethrow_exception(error);
  }
};

}  // namespace task_detail

template <class T = void>
class [[nodiscard]] Task {
 public:
  struct promise_type : task_detail::Promise<T> {
    Task get_return_object() noexcept { return Task(Handle::from_promise(*this)); }
  };
  using Handle = std::coroutine_handle<promise_type>;

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  auto operator co_await() && noexcept {
    struct Awaiter {
      Handle child;
      bool await_ready() const {
        child.resume();
        return child.done();
      }
      void await_suspend(std::coroutine_handle<> parent) const noexcept { child.promise().continuation = parent; }
      T await_resume() const { return child.promise().take(); }
    };
    return Awaiter{handle_};
  }

  // For roots (base/task/scope.h) and combinators: start, and inspect without awaiting.
  void start() { resume(handle_); }
  bool done() const noexcept { return handle_.done(); }
  void on_done(std::coroutine_handle<> continuation) noexcept { handle_.promise().continuation = continuation; }
  T take() { return handle_.promise().take(); }

 private:
  explicit Task(Handle handle) noexcept : handle_(handle) {}
  Handle handle_;
};

}  // namespace aiacc

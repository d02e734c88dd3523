// Scope: children that run concurrently and are always joined. The first child to fail stops the others (through the
// scope's Stop), and join() rethrows its error; later failures are consequences and are dropped.
// Root: a coroutine that nobody awaits; its owner is notified once when it ends.
#pragma once

#include <coroutine>
#include <list>

#include "base/task/loop.h"

namespace aiacc {

class Scope {
 public:
  // Children are stopped when `parent` is requested. The scope is in the frame of the coroutine that joins it.
  Scope(Loop& loop, Stop& parent) : stop_(parent), idle_(loop) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();  // requires that every child has ended: join() was awaited, or nothing was spawned

  Stop& stop() noexcept { return stop_; }

  // Starts the child now, inline, until it first suspends.
  void spawn(Task<void> child);

  // Waits until no child runs, also after a stop, then rethrows the first error.
  Task<void> join();

 private:
  static Task<void> watch(Scope* self, Task<void> body);

  Stop stop_;
  Event idle_;
  std::list<Task<void>> children_;  // finished ones stay until the next spawn: a frame cannot free itself
  std::size_t running_ = 0;
  std::exception_ptr first_error_;
};

// A coroutine without an awaiter. Its owner is notified once, after the body has ended (so it may destroy the Root):
// from inside start() if the body never suspended, otherwise from the loop. Must not be destroyed while the body runs.
class Root final : private Job {
 public:
  class Owner {
   public:
    // `error` is null on success.
    virtual void root_ended(Root& root, std::exception_ptr error) noexcept = 0;

   protected:
    ~Owner() = default;
  };
  Root(Loop& loop, Task<void> body, Owner& owner);
  ~Root();
  void start();

 private:
  static Task<void> watch(Root* self, Task<void> body);
  void run() noexcept override;

  Loop& loop_;
  Owner& owner_;
  Task<void> watcher_;
  bool starting_ = false;
  bool ended_ = false;
  std::exception_ptr error_;
};

}  // namespace aiacc

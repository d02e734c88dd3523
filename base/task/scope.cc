#include "base/task/scope.h"

namespace aiacc {

Scope::~Scope() {
  if (running_ != 0) std::terminate();  // a running child would use destroyed objects
}

Task<void> Scope::watch(Scope* self, Task<void> body) {
  try {
    co_await std::move(body);
  } catch (...) {
    if (!self->first_error_) self->first_error_ = std::current_exception();
    self->stop_.request(std::current_exception());
  }
  if (--self->running_ == 0) self->idle_.set();
}

void Scope::spawn(Task<void> child) {
  children_.remove_if([](const Task<void>& task) { return task.done(); });
  children_.push_back(watch(this, std::move(child)));
  ++running_;
  idle_.reset();
  children_.back().start();
}

Task<void> Scope::join() {
  Stop none;
  while (running_ != 0) co_await idle_.wait(none);
  if (first_error_) std::rethrow_exception(first_error_);
}

Root::Root(Loop& loop, Task<void> body, Owner& owner)
    : loop_(loop), owner_(owner), watcher_(watch(this, std::move(body))) {}

Root::~Root() {
  if (starting_) std::terminate();
}

Task<void> Root::watch(Root* self, Task<void> body) {
  try {
    co_await std::move(body);
  } catch (...) {
    self->error_ = std::current_exception();
  }
  self->ended_ = true;
  if (!self->starting_) self->loop_.post(*self);
}

void Root::start() {
  starting_ = true;
  watcher_.start();
  starting_ = false;
  if (ended_) run();
}

void Root::run() noexcept { owner_.root_ended(*this, std::move(error_)); }

}  // namespace aiacc

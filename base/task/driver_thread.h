// The only kind of thread that this library creates: named, with all signals blocked, joined by its owner. It drives a
// lane or runs callbacks.
#pragma once

#include <pthread.h>

#include <functional>
#include <string>

namespace aiacc {

class DriverThread {
 public:
  // Throws kSystem if the system refuses another thread. `name` is cut to 15 bytes. `body` must not throw.
  DriverThread(const std::string& name, std::function<void()> body);
  // Joins the thread.
  ~DriverThread();
  DriverThread(const DriverThread&) = delete;
  DriverThread& operator=(const DriverThread&) = delete;

  void join() noexcept;

 private:
  static void* enter(void* self);

  std::string name_;
  std::function<void()> body_;
  pthread_t thread_{};
  bool joinable_ = false;
};

}  // namespace aiacc

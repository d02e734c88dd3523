#include "base/task/driver_thread.h"

#include <csignal>
#include <utility>

#include "base/error.h"

namespace aiacc {

DriverThread::DriverThread(const std::string& name, std::function<void()> body)
    : name_(name.substr(0, 15)), body_(std::move(body)) {
  // Blocked before the thread is created: otherwise it could receive a signal of the process before it blocks them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(&thread_, nullptr, &DriverThread::enter, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed != 0)
    throw system_error("cannot start the thread " + name_ + " (see ulimit -u and the cgroup's pids.max)", failed);
  joinable_ = true;
}

DriverThread::~DriverThread() { join(); }

void DriverThread::join() noexcept {
  if (std::exchange(joinable_, false)) pthread_join(thread_, nullptr);
}

void* DriverThread::enter(void* self) {
  auto& thread = *static_cast<DriverThread*>(self);
  pthread_setname_np(pthread_self(), thread.name_.c_str());
  thread.body_();
  return nullptr;
}

}  // namespace aiacc

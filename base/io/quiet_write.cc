#include "base/io/quiet_write.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace aiacc::io {

// The kernel sends the signal to the writing thread, which blocks it during the call and discards it afterwards.
ssize_t write_without_sigpipe(int descriptor, const void* data, std::size_t bytes) noexcept {
  sigset_t pipe_signal;
  sigset_t outer;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &outer);
  const ssize_t written = ::write(descriptor, data, bytes);
  const int error = errno;
  if (written < 0 && error == EPIPE && sigismember(&outer, SIGPIPE) == 0) {
    const timespec at_once{};
    sigtimedwait(&pipe_signal, nullptr, &at_once);
  }
  pthread_sigmask(SIG_SETMASK, &outer, nullptr);
  errno = error;
  return written;
}

}  // namespace aiacc::io

#include "base/io/real_signals.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/io/limits.h"

namespace aiacc::io {
namespace {

bool is_ignored(int number) {
  struct sigaction action {};
  return ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Leaves out signals that this process ignores (nohup, a shell's background job), because a signalfd would report them.
sigset_t set_of(std::initializer_list<int> numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) {
    if (!is_ignored(number)) sigaddset(&set, number);
  }
  return set;
}

}  // namespace

Fd make_signalfd(const sigset_t& numbers) {
  Fd result(checked_descriptor(signalfd(-1, &numbers, SFD_CLOEXEC | SFD_NONBLOCK), "cannot make a signal descriptor"));
  pthread_sigmask(SIG_BLOCK, &numbers, nullptr);
  return result;
}

RealSignals::RealSignals(RealLoop& loop, std::initializer_list<int> numbers)
    : signals_(make_signalfd(set_of(numbers))), arrived_(loop) {
  loop.watch_edges(*this, signals_.get(), true, false);
}

Task<int> RealSignals::next(Stop& stop) {
  for (;;) {
    stop.throw_if_requested();
    signalfd_siginfo info{};
    const ssize_t got = ::read(signals_.get(), &info, sizeof info);
    if (got == static_cast<ssize_t>(sizeof info)) co_return static_cast<int>(info.ssi_signo);
    if (errno == EINTR) continue;
    if (errno != EAGAIN) throw system_error("cannot read signals", errno);
    arrived_.reset();
    co_await arrived_.wait(stop);
  }
}

void RealSignals::stop_self() noexcept { ::kill(::getpid(), SIGSTOP); }

}  // namespace aiacc::io

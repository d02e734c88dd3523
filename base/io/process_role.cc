#include "base/io/process_role.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/fd.h"
#include "base/io/limits.h"

namespace aiacc::io {

namespace {

[[noreturn]] void cannot_isolate(const char* what, int errno_value) {
  throw Error(Code::kUnsupported, system_error(fmt::format("cannot isolate the job: {}", what), errno_value).message());
}

bool write_file(const char* path, const std::string& text) noexcept {
  const Fd file(::open(path, O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// A user without the privilege to create a pid namespace may do so inside a new user namespace.
void unshare_pid_namespace() {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWPID | CLONE_NEWNS) == 0) return;
  if (errno != EPERM) cannot_isolate("no pid namespace", errno);
  if (::unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS) != 0) cannot_isolate("no user namespace", errno);
  write_file("/proc/self/setgroups", "deny");
  if (!write_file("/proc/self/uid_map", fmt::format("{} {} 1\n", user, user)) ||
      !write_file("/proc/self/gid_map", fmt::format("{} {} 1\n", group, group))) {
    cannot_isolate("the user cannot be mapped into the namespace", errno);
  }
}

[[noreturn]] void exit_with_status_of(pid_t child) noexcept {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    ::signal(WTERMSIG(status), SIG_DFL);
    ::raise(WTERMSIG(status));
  }
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 125);
}

}  // namespace

void set_process_name(const char* name) noexcept { ::prctl(PR_SET_NAME, name); }

unsigned fill_standard_descriptors() {
  unsigned closed = 0;
  for (int number = 0; number < 3; ++number) {
    if (::fcntl(number, F_GETFD) >= 0) continue;
    closed |= 1u << number;
    // open() returns the lowest free number, which is `number`: those below are open.
    const int opened = ::open("/dev/null", number == 0 ? O_RDONLY : O_WRONLY);
    if (opened != number) throw system_error(fmt::format("cannot open /dev/null as descriptor {}", number), errno);
  }
  return closed;
}

void close_standard_descriptor(int number) {
  const Fd null(checked_descriptor(::open("/dev/null", O_RDWR | O_CLOEXEC), "cannot open /dev/null"));
  if (::dup2(null.get(), number) < 0) throw system_error("cannot replace a standard descriptor", errno);
}

void detach_from_parent() noexcept {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, 0);
}

void enter_pid_namespace() {
  unshare_pid_namespace();
  // A pipe for the result of the new process's first steps: end of stream for success, or an errno.
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw limit_error("cannot make a pipe", errno);
  Fd result(ends[0]);
  Fd report(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw limit_error("cannot start process 1 of a pid namespace", errno);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    result.reset();
    (void)parent;
    // A private /proc, because the one of the parent namespace has other process ids.
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) {
      const int failed = errno;
      (void)!::write(report.get(), &failed, sizeof failed);
      ::_exit(125);
    }
    return;
  }
  report.reset();
  int failed = 0;
  if (::read(result.get(), &failed, sizeof failed) == sizeof failed) {
    ::waitpid(child, nullptr, 0);
    cannot_isolate("no /proc for the pid namespace", failed);
  }
  // This process only waits, so it must not keep the job's descriptors open.
  for (int number = 0; number < 2; ++number) close_standard_descriptor(number);
  exit_with_status_of(child);
}

}  // namespace aiacc::io

#include "base/io/real_host.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

#include "base/io/limits.h"
#include "base/io/procfs.h"
#include "base/io/real_net.h"
#include "base/io/real_signals.h"
#include "base/io/spawn.h"

namespace aiacc::io {
namespace {

// glibc 2.36 declares its wrappers of these two without C linkage.
int open_pidfd(ProcessId process) noexcept { return static_cast<int>(::syscall(SYS_pidfd_open, process, 0)); }
void send_signal(int pidfd, int number) noexcept { ::syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0); }

ExitStatus status_of(const siginfo_t& info) noexcept {
  ExitStatus status;
  (info.si_code == CLD_EXITED ? status.code : status.signal) = info.si_status;
  return status;
}

std::unique_ptr<Stream> stream_of(RealLoop& loop, Fd descriptor, std::string description) {
  return descriptor ? adopt(loop, std::move(descriptor), std::move(description)) : nullptr;
}

}  // namespace

class RealProcess final : public Process, public ListNode<RealProcess>, private Watch {
 public:
  RealProcess(RealHost& host, RealLoop& loop, Spawned spawned, const SpawnSpec& spec)
      : host_(host), id_(spawned.id), has_group_(spec.group != SpawnSpec::Group::kInherit), end_(loop), stop_(loop) {
    const std::string who = fmt::format("process {} ({})", id_, spec.argv.front());
    pidfd_ = Fd(checked_descriptor(open_pidfd(id_), "cannot watch " + who));
    loop.watch_edges(*this, pidfd_.get(), true, false);
    in = stream_of(loop, std::move(spawned.in), "standard input of " + who);
    out = stream_of(loop, std::move(spawned.out), "standard output of " + who);
    err = stream_of(loop, std::move(spawned.err), "standard error of " + who);
    channel = stream_of(loop, std::move(spawned.channel), "the channel of " + who);
    unbound = spawned.unbound;
    host.processes_.push_back(*this);
  }
  ~RealProcess() override {
    unwatch();
    if (!status_) host_.abandoned_.push_back(id_);
  }

  ProcessId id() const noexcept override { return id_; }
  std::optional<ExitStatus> ended() const noexcept override { return status_; }

  Task<ExitStatus> wait(Stop& stop) override {
    co_await end_.wait(stop);
    co_return *status_;
  }

  Task<int> stopped(Stop& stop) override {
    host_.watch_children();
    look_for_stop();
    co_await stop_.wait(stop);
    stop_.reset();
    co_return stop_signal_;
  }

  void signal(int number) noexcept override {
    if (!status_) send_signal(pidfd_.get(), number);
  }
  void signal_group(int number) noexcept override {
    if (status_) return;
    // Not reaped yet, so the number was not reused for another process or group.
    if (has_group_) {
      ::kill(-id_, number);
    } else {
      signal(number);
    }
  }

  // Reaps the process if it has ended.
  void look_for_end() noexcept {
    if (status_) return;
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOHANG) != 0) {
      if (errno != ECHILD) return;
      status_ = ExitStatus{255, 0};  // other code of this program has reaped it, so its status is lost
    } else if (info.si_pid == id_) {
      status_ = status_of(info);
    } else {
      return;
    }
    unwatch();
    end_.set();
  }

  void look_for_stop() noexcept {
    if (status_) return;
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(id_), &info, WSTOPPED | WNOHANG) != 0 || info.si_pid != id_) return;
    stop_signal_ = info.si_status;
    stop_.set();
  }

 private:
  void ready(Ready) noexcept override { look_for_end(); }

  RealHost& host_;
  ProcessId id_;
  bool has_group_;
  Fd pidfd_;
  std::optional<ExitStatus> status_;
  int stop_signal_ = 0;
  Event end_;
  Event stop_;
};

RealHost::RealHost(RealLoop& loop) : loop_(loop) {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  // If SIGCHLD is ignored, as some parents leave it, the kernel discards exit statuses.
  ::sigaction(SIGCHLD, &standard, nullptr);
}

RealHost::~RealHost() {
  unwatch();
  reap_abandoned();
}

std::string RealHost::name() const {
  std::array<char, HOST_NAME_MAX + 1> text{};
  return ::gethostname(text.data(), text.size() - 1) == 0 ? text.data() : "localhost";
}

void RealHost::adopt_orphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw system_error("cannot become the parent of orphans", errno);
  adopts_ = true;
  watch_children();
  reap_adopted();
}

void RealHost::watch_children() {
  if (children_) return;
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  children_ = make_signalfd(child);
  loop_.watch_edges(*this, children_.get(), true, false);
}

void RealHost::ready(Ready) noexcept {
  signalfd_siginfo info{};
  while (::read(children_.get(), &info, sizeof info) > 0) {
  }  // one SIGCHLD may mean many changes, so the children are queried
  // One query for all children: hundreds of ranks that end together must not cost quadratic time.
  siginfo_t stopped{};
  if (::waitid(P_ALL, 0, &stopped, WSTOPPED | WNOHANG | WNOWAIT) == 0 && stopped.si_pid != 0) {
    processes_.for_each([](RealProcess& process) { process.look_for_stop(); });
  }
  if (adopts_) reap_adopted();
}

// Reaps children that this object did not spawn. A spawned child that has ended is reaped here too, because waitid()
// would otherwise return it again and again.
void RealHost::reap_adopted() noexcept {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    RealProcess* mine = nullptr;
    processes_.for_each([&](RealProcess& process) {
      if (process.id() == info.si_pid) mine = &process;
    });
    if (mine != nullptr) {
      mine->look_for_end();
    } else {
      ::waitpid(info.si_pid, nullptr, WNOHANG);
      std::erase(abandoned_, info.si_pid);  // the number may be reused
    }
  }
}

void RealHost::reap_abandoned() noexcept {
  std::erase_if(abandoned_, [](ProcessId id) { return ::waitpid(id, nullptr, WNOHANG) != 0; });
}

std::unique_ptr<Process> RealHost::spawn(const SpawnSpec& spec) {
  reap_abandoned();
  Spawned spawned = spawn_process(spec);
  const ProcessId id = spawned.id;
  try {
    return std::make_unique<RealProcess>(*this, loop_, std::move(spawned), spec);
  } catch (...) {
    ::kill(id, SIGKILL);  // a child that cannot be watched must not run
    ::waitpid(id, nullptr, 0);
    throw;
  }
}

std::vector<ProcessId> RealHost::descendants() {
  std::vector<ProcessId> result;
  for (const ProcessLine& line : descendants_of(::getpid(), read_processes())) {
    if (line.state != 'Z' && line.state != 'X') result.push_back(line.id);
  }
  return result;
}

void RealHost::signal(ProcessId process, int number) noexcept {
  if (process > 0) ::kill(process, number);
}

char RealHost::state(ProcessId process) {
  const std::optional<ProcessLine> line = read_process(process);
  return line ? line->state : '\0';
}

std::optional<std::string> RealHost::read_file(const std::string& path) { return read_small_file(path); }

}  // namespace aiacc::io

#include "base/io/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/io/limits.h"
#include "base/io/real_net.h"

namespace aiacc::io {
namespace {

constexpr int kChannel = 3;
constexpr int kStartMs = 30'000;  // a child that has not reached exec by then is blocked by a file system

// The step at which the child failed. Sent with errno through the error pipe, which is empty if exec succeeded.
enum class Stage : std::int32_t { kSession, kParent, kDescriptors, kDirectory, kLimit, kBinding, kExec };
struct Failure {
  Stage stage;
  std::int32_t errno_value;
};

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
};

// Everything that the child needs, prepared before the fork, because it must not allocate or lock between fork and
// exec.
struct Plan {
  std::vector<std::string> candidates;
  std::vector<const char*> candidate_paths;
  std::vector<char*> argv;
  std::vector<char*> env;
  const char* cwd = nullptr;
  std::array<int, 4> sources{-1, -1, -1, -1};  // for descriptors 0 to 3; each is above 3, or -1: leave as it is
  SpawnSpec::Group group = SpawnSpec::Group::kNewGroup;
  bool die_with_parent = true;
  bool channel = false;
  pid_t parent = 0;
  rlimit descriptors{};
  std::unique_ptr<cpu_set_t, FreeCpuSet> binding;
  std::size_t binding_bytes = 0;
  int report = -1;
};

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  // Exec does not write to it.
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

void set_binding(Plan& plan, const CpuList& cpus) {
  if (cpus.empty()) return;
  const unsigned count = *std::max_element(cpus.begin(), cpus.end()) + 1;
  plan.binding.reset(CPU_ALLOC(count));
  if (plan.binding == nullptr) throw std::bad_alloc();
  plan.binding_bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(plan.binding_bytes, plan.binding.get());
  for (const unsigned cpu : cpus) CPU_SET_S(cpu, plan.binding_bytes, plan.binding.get());
}

// --- in the child: system calls only -------------------------------------------------------------------------------------

void report(const Plan& plan, Stage stage) {
  const Failure failure{stage, errno};
  [[maybe_unused]] const ssize_t written = ::write(plan.report, &failure, sizeof failure);
}

[[noreturn]] void give_up(const Plan& plan, Stage stage) {
  report(plan, stage);
  ::_exit(127);
}

void restore_signals() {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &standard, nullptr);  // KILL and STOP refuse
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);  // NOLINT(concurrency-mt-unsafe): a child with one thread
}

void tie_to_parent(const Plan& plan) {
  if (!plan.die_with_parent) return;
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up(plan, Stage::kParent);
  // The parent may have died before the signal was set. 0: it is in another pid namespace and cannot be compared.
  const pid_t parent = ::getppid();
  if (parent != plan.parent && parent != 0) ::_exit(127);
}

void place_descriptors(const Plan& plan) {
  for (int target = 0; target < 4; ++target) {
    const int source = plan.sources[static_cast<std::size_t>(target)];
    if (source >= 0 && ::dup2(source, target) < 0) give_up(plan, Stage::kDescriptors);
    if (source < 0 && target < kChannel) ::fcntl(target, F_SETFD, 0);
  }
  const unsigned first_closed = plan.channel ? 4 : 3;
  if (::close_range(first_closed, ~0u, CLOSE_RANGE_CLOEXEC) == 0) return;
  const auto limit = static_cast<int>(std::min<rlim_t>(plan.descriptors.rlim_max, 1u << 20));
  for (int fd = static_cast<int>(first_closed); fd < limit; ++fd)
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);  // before Linux 5.11
}

[[noreturn]] void become_program(const Plan& plan) {
  int denied = 0;
  for (const char* path : plan.candidate_paths) {
    ::execve(path, plan.argv.data(), plan.env.data());
    if (errno == EACCES) denied = errno;
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) break;
  }
  // As in a shell: "permission denied" for a file that exists is a better error than "not found" for the last folder.
  if (denied != 0 && (errno == ENOENT || errno == ENOTDIR)) errno = denied;
  give_up(plan, Stage::kExec);
}

[[noreturn]] void run_child(const Plan& plan) {
  if (plan.group == SpawnSpec::Group::kNewSession && ::setsid() < 0) give_up(plan, Stage::kSession);
  if (plan.group == SpawnSpec::Group::kNewGroup && ::setpgid(0, 0) != 0) give_up(plan, Stage::kSession);
  tie_to_parent(plan);
  place_descriptors(plan);
  if (plan.cwd != nullptr && ::chdir(plan.cwd) != 0) give_up(plan, Stage::kDirectory);
  if (::setrlimit(RLIMIT_NOFILE, &plan.descriptors) != 0) give_up(plan, Stage::kLimit);
  if (plan.binding != nullptr && ::sched_setaffinity(0, plan.binding_bytes, plan.binding.get()) != 0) {
    report(plan, Stage::kBinding);  // it runs unbound
  }
  restore_signals();
  become_program(plan);
}

// --- in the parent -------------------------------------------------------------------------------------------------------

// Blocks all signals from before the fork until after it, because no signal handler may run in the child.
class NoSignals {
 public:
  NoSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

pid_t fork_child(const Plan& plan) {
  const NoSignals guard;
  const pid_t child = ::fork();
  if (child == 0) run_child(plan);
  return child;
}

void reap(pid_t child) noexcept {
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// Why a file that is there is none for exec: it or the interpreter that its first line names.
std::string what_is_missing(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return "no such file";
  constexpr std::size_t kReadByKernel = 256;
  std::string line(kReadByKernel, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  line.resize(std::min(line.size(), line.find('\n')));
  if (!line.starts_with("#!")) return "the loader that it names is not here, as when it was built for another machine";
  const std::size_t begin = std::min(line.find_first_not_of(" \t", 2), line.size());
  const std::string interpreter = line.substr(begin, line.find_first_of(" \t", begin) - begin);
  if (interpreter.ends_with('\r')) {
    return "its lines end as on Windows, so the kernel takes the carriage return for a part of the interpreter's name: "
           "convert it, as with sed -i 's/\\r$//'";
  }
  return fmt::format("the interpreter that its first line names, '{}', is not there", interpreter);
}

std::string sentence_of_exec(const SpawnSpec& spec, int errno_value) {
  const std::string& name = spec.program.empty() ? spec.argv.front() : spec.program;
  const bool looked_up = name.find('/') == std::string::npos;
  switch (errno_value) {
    case ENOENT:
      if (looked_up) return fmt::format("cannot start '{}': there is no such program in PATH; give its path", name);
      return fmt::format("cannot start '{}': {}", name,
                         what_is_missing(name.front() == '/' || spec.cwd.empty() ? name : spec.cwd + "/" + name));
    case EACCES:
      return fmt::format("cannot start '{}': it is not executable (chmod +x it, or name its interpreter first)", name);
    case ENOEXEC:
      return fmt::format(
          "cannot start '{}': it is no program for this machine (a script needs a first line such as "
          "#!/bin/sh)",
          name);
    case E2BIG:
      return fmt::format("cannot start '{}': its arguments and environment are larger than the kernel takes", name);
    default: return system_error(fmt::format("cannot start '{}'", name), errno_value).message();
  }
}

[[noreturn]] void throw_failure(const SpawnSpec& spec, const Failure& failure) {
  const std::string& name = spec.argv.front();
  const int error = failure.errno_value;
  switch (failure.stage) {
    case Stage::kExec: throw SpawnError(sentence_of_exec(spec, error), error);
    case Stage::kDirectory: throw system_error(fmt::format("cannot enter the working directory '{}'", spec.cwd), error);
    case Stage::kBinding: break;  // no failure: see await_exec()
    case Stage::kSession: throw system_error(fmt::format("cannot give '{}' its own group", name), error);
    case Stage::kParent: throw system_error(fmt::format("cannot tie '{}' to its parent's life", name), error);
    case Stage::kDescriptors: throw limit_error(fmt::format("cannot give '{}' its descriptors", name), error);
    case Stage::kLimit: throw system_error(fmt::format("cannot restore the descriptor limit of '{}'", name), error);
  }
  throw Error(Code::kInternal, "a child reported a failure at an unknown stage");
}

// Waits until the child has executed the program (end of file) or reported an error. Returns errno of a refused
// binding, or 0.
int await_exec(const SpawnSpec& spec, pid_t child, const Fd& report) {
  pollfd readable{report.get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&readable, 1, kStartMs);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) {
    ::kill(child, SIGKILL);  // it may be blocked in the kernel, so it is not waited for
    throw Error(Code::kSystem,
                fmt::format("'{}' did not start within {} s: does the file system of the program or of its "
                            "working directory answer?",
                            spec.argv.front(), kStartMs / 1000));
  }
  Failure failure{};
  int unbound = 0;
  for (;;) {
    const ssize_t got = ::read(report.get(), &failure, sizeof failure);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) return unbound;
    if (got != sizeof failure || failure.stage != Stage::kBinding) break;
    unbound = failure.errno_value;
  }
  reap(child);
  throw_failure(spec, failure);
}

std::string path_in(const std::vector<std::string>& env) {
  constexpr std::string_view kName = "PATH=";
  for (const std::string& variable : env) {
    if (variable.starts_with(kName)) return variable.substr(kName.size());
  }
  return "/usr/local/bin:/usr/bin:/bin";
}

// Creates the child's descriptor `target`: returns the parent's end and adds the child's end to `theirs`.
Fd make_stdio(SpawnSpec::Stdio kind, int target, Plan& plan, std::vector<Fd>& theirs) {
  Fd ours;
  if (kind == SpawnSpec::Stdio::kInherit) return ours;
  if (kind == SpawnSpec::Stdio::kNull) {
    const Fd null(checked_descriptor(::open("/dev/null", (target == 0 ? O_RDONLY : O_WRONLY) | O_CLOEXEC),
                                     "cannot open /dev/null"));
    theirs.emplace_back(checked_descriptor(::fcntl(null.get(), F_DUPFD_CLOEXEC, 4), "cannot copy a descriptor"));
  } else {
    FdPair pipe = make_pipe();
    ours = std::move(target == 0 ? pipe.second : pipe.first);
    theirs.push_back(std::move(target == 0 ? pipe.first : pipe.second));
  }
  plan.sources[static_cast<std::size_t>(target)] = theirs.back().get();
  return ours;
}

}  // namespace

std::vector<std::string> program_candidates(const SpawnSpec& spec) {
  if (!spec.program.empty()) return {spec.program};
  const std::string& name = spec.argv.front();
  if (name.empty() || name.find('/') != std::string::npos) return {name};
  std::vector<std::string> result;
  const std::string path = path_in(spec.env);
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    result.push_back(folder.empty() ? name : folder + "/" + name);  // an empty element is the working directory
    begin = end + 1;
  }
  return result;
}

Spawned spawn_process(const SpawnSpec& spec) {
  if (spec.argv.empty()) throw Error(Code::kInvalidArgument, "there is no program to start: argv is empty");
  Plan plan;
  plan.candidates = program_candidates(spec);
  for (const std::string& path : plan.candidates) plan.candidate_paths.push_back(path.c_str());
  plan.argv = pointers_to(spec.argv);
  plan.env = pointers_to(spec.env);
  plan.cwd = spec.cwd.empty() ? nullptr : spec.cwd.c_str();
  plan.group = spec.group;
  plan.die_with_parent = spec.die_with_parent;
  plan.channel = spec.channel;
  plan.parent = ::getpid();
  plan.descriptors = original_descriptor_limit();
  set_binding(plan, spec.binding);

  Spawned result;
  std::vector<Fd> theirs;  // closed in the parent after the fork
  result.in = make_stdio(spec.in, 0, plan, theirs);
  result.out = make_stdio(spec.out, 1, plan, theirs);
  result.err = make_stdio(spec.err, 2, plan, theirs);
  if (spec.channel) {
    FdPair pair = make_socketpair();
    result.channel = std::move(pair.first);
    theirs.push_back(std::move(pair.second));
    plan.sources[kChannel] = theirs.back().get();
  }
  FdPair report = make_pipe();
  plan.report = report.second.get();

  result.id = fork_child(plan);
  if (result.id < 0) throw limit_error(fmt::format("cannot start '{}'", spec.argv.front()), errno);
  report.second.reset();
  theirs.clear();
  result.unbound = await_exec(spec, result.id, report.first);
  return result;
}

}  // namespace aiacc::io

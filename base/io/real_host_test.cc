#include "base/io/real_host.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "base/io/host_conformance.h"
#include "base/io/limits.h"
#include "base/io/procfs.h"
#include "base/io/real_fixture.h"
#include "base/io/real_signals.h"
#include "base/io/spawn.h"

namespace aiacc::io {
namespace {

using host_conformance::end_of;
using host_conformance::text_of;

class RealHostFixture : public RealFixture {
 public:
  Host& host() { return host_; }
  SpawnSpec program(TestProgram what) {
    SpawnSpec spec;
    spec.env = {"PATH=/usr/bin:/bin"};
    switch (what) {
      case TestProgram::kExit3: spec.argv = {"sh", "-c", "exit 3"}; break;
      case TestProgram::kSleep: spec.argv = {"sleep", "1000"}; break;
      case TestProgram::kEcho: spec.argv = {"cat"}; break;
      case TestProgram::kEchoChannel: spec.argv = {"sh", "-c", "exec cat <&3 >&3"}; break;
      case TestProgram::kPrintWord: spec.argv = {"sh", "-c", "echo \"$WORD\""}; break;
      case TestProgram::kStubborn: spec.argv = {"sh", "-c", "trap '' TERM; echo ready; exec sleep 1000"}; break;
      case TestProgram::kParent: spec.argv = {"sh", "-c", "sleep 1000 & echo ready; wait"}; break;
      case TestProgram::kOrphaner: spec.argv = {"sh", "-c", "sleep 1000 & exit 0"}; break;
      case TestProgram::kMissing: spec.argv = {"aiacc-no-such-program"}; break;
    }
    return spec;
  }

 private:
  RealHost host_{loop()};
};

INSTANTIATE_TYPED_TEST_SUITE_P(Real, HostConformance, RealHostFixture);

class RealHostTest : public testing::Test {
 protected:
  SpawnSpec shell(const std::string& script) {
    SpawnSpec spec = fixture_.program(TestProgram::kExit3);
    spec.argv = {"/bin/sh", "-c", script};
    spec.out = SpawnSpec::Stdio::kPipe;
    return spec;
  }
  std::string output_of(const SpawnSpec& spec) {
    const auto process = fixture_.host().spawn(spec);
    std::string text = fixture_.run(text_of(*process->out));
    EXPECT_TRUE(fixture_.run(end_of(*process)).ok());
    return text;
  }
  Error error_of(const SpawnSpec& spec) {
    try {
      fixture_.host().spawn(spec);
    } catch (const Error& error) {
      return error;
    }
    return Error(Code::kOk, "it was started");
  }
  int errno_of(const SpawnSpec& spec) {
    try {
      fixture_.host().spawn(spec);
    } catch (const SpawnError& error) {
      last_sentence_ = error.message();
      return error.errno_value();
    }
    return 0;
  }
  RealHostFixture fixture_;
  std::string last_sentence_;
};

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 1000; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

// A temporary folder for a test.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/aiacc-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() {
    for (const std::string& file : files_) unlink(file.c_str());
    rmdir(path_.c_str());
  }
  std::string add(const std::string& name, const std::string& text, mode_t mode) {
    files_.push_back(path_ + "/" + name);
    std::ofstream(files_.back()) << text;
    chmod(files_.back().c_str(), mode);
    return files_.back();
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<std::string> files_;
};

TEST_F(RealHostTest, AChildHasItsStdioAndItsChannelAndNoOtherDescriptor) {
  const Fd leak_without_cloexec(dup(0));
  SpawnSpec spec =
      shell("for fd in 0 1 2 3 4 5 6 7 8 9 10 11 12; do test -e /proc/self/fd/$fd && echo $fd; done; true");
  spec.err = SpawnSpec::Stdio::kNull;
  EXPECT_EQ(output_of(spec), "0\n1\n2\n");
  spec.channel = true;
  EXPECT_EQ(output_of(spec), "0\n1\n2\n3\n");
}

TEST_F(RealHostTest, AChildHasNoSignalBlockedOrIgnored) {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  signal(SIGHUP, SIG_IGN);
  const std::string text = output_of(shell("exec grep -E 'SigBlk|SigIgn' /proc/self/status"));
  signal(SIGHUP, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
  // 32 and 33 are reserved by the C library and cannot be changed through it; make leaves them ignored in its children.
  unsigned long blocked_set = 1, ignored_set = 1;
  ASSERT_EQ(std::sscanf(text.c_str(), "SigBlk: %lx SigIgn: %lx", &blocked_set, &ignored_set), 2) << text;
  EXPECT_EQ(blocked_set, 0u);
  EXPECT_EQ(ignored_set & ~0x180000000ul, 0u) << text;
}

TEST_F(RealHostTest, GroupAndSessionAreAsAsked) {
  // Fields 5 and 6 of stat are group and session.
  const std::string script =
      "set -- $(cat /proc/self/stat); exec 3</proc/$$/stat; read -r line <&3; set -- $line; echo $1 $5 $6";
  for (const auto group : {SpawnSpec::Group::kInherit, SpawnSpec::Group::kNewGroup, SpawnSpec::Group::kNewSession}) {
    SpawnSpec spec = shell(script);
    spec.group = group;
    const auto process = fixture_.host().spawn(spec);
    const std::string text = fixture_.run(text_of(*process->out));
    fixture_.run(end_of(*process));
    const std::string id = std::to_string(process->id());
    const std::string own_group = group == SpawnSpec::Group::kInherit ? std::to_string(getpgrp()) : id;
    const std::string session = group == SpawnSpec::Group::kNewSession ? id : std::to_string(getsid(0));
    EXPECT_EQ(text, id + " " + own_group + " " + session + "\n");
  }
}

TEST_F(RealHostTest, TheWorkingDirectoryIsTheSpecs) {
  const Folder folder;
  SpawnSpec spec = shell("pwd");
  spec.cwd = folder.path();
  EXPECT_EQ(output_of(spec), folder.path() + "\n");
}

TEST_F(RealHostTest, AMissingWorkingDirectoryIsNamedAndIsNoFaultOfTheProgram) {
  SpawnSpec spec = shell("pwd");
  spec.cwd = "/nonexistent/place";
  EXPECT_THROW(
      try { fixture_.host().spawn(spec); } catch (const SpawnError&) { FAIL() << "taken for the program's"; }, Error);
  const Error error = error_of(spec);
  EXPECT_EQ(error.code(), Code::kSystem);
  EXPECT_NE(error.message().find("working directory '/nonexistent/place'"), std::string::npos) << error.message();
}

TEST_F(RealHostTest, PathIsTheChildsAndADeniedProgramIsToldFromAMissingOne) {
  Folder first;
  Folder second;
  first.add("tool", "#!/bin/sh\necho first\n", 0644);
  SpawnSpec spec = shell("");
  spec.argv = {"tool"};
  spec.env = {"PATH=" + first.path() + ":" + second.path()};
  EXPECT_EQ(errno_of(spec), EACCES) << "found, though not executable, and nothing behind it";
  EXPECT_NE(last_sentence_.find("chmod +x"), std::string::npos) << last_sentence_;
  second.add("tool", "#!/bin/sh\necho second\n", 0755);
  EXPECT_EQ(output_of(spec), "second\n");
  spec.env = {"PATH=/nonexistent"};
  EXPECT_EQ(errno_of(spec), ENOENT);
  EXPECT_NE(last_sentence_.find("no such program in PATH"), std::string::npos) << last_sentence_;
}

TEST_F(RealHostTest, OtherFailuresOfExecKeepTheirErrno) {
  Folder folder;
  SpawnSpec spec = shell("");
  spec.argv = {folder.add("no-first-line", "echo hello\n", 0755)};
  EXPECT_EQ(errno_of(spec), ENOEXEC);
  spec.argv = {folder.add("no-interpreter", "#!/nonexistent/python\n", 0755)};
  EXPECT_EQ(errno_of(spec), ENOENT);
  EXPECT_NE(last_sentence_.find("'/nonexistent/python', is not there"), std::string::npos) << last_sentence_;
  spec.argv = {folder.add("with-argument", "#! /nonexistent/sh -e\n", 0755)};
  EXPECT_EQ(errno_of(spec), ENOENT);
  EXPECT_NE(last_sentence_.find("'/nonexistent/sh', is not there"), std::string::npos) << last_sentence_;
  spec.argv = {folder.add("of-windows", "#!/bin/sh\r\necho hello\r\n", 0755)};
  EXPECT_EQ(errno_of(spec), ENOENT);
  EXPECT_NE(last_sentence_.find("carriage return"), std::string::npos) << last_sentence_;
  spec.cwd = folder.path();
  spec.argv = {"./of-windows"};
  EXPECT_EQ(errno_of(spec), ENOENT);
  EXPECT_NE(last_sentence_.find("carriage return"), std::string::npos) << last_sentence_;
  spec.argv = {"./missing"};
  EXPECT_EQ(errno_of(spec), ENOENT);
  EXPECT_NE(last_sentence_.find("no such file"), std::string::npos) << last_sentence_;
  spec.argv = {folder.path()};
  EXPECT_EQ(errno_of(spec), EACCES);
  spec.argv = {"/bin/true", std::string(200'000, 'x')};
  EXPECT_EQ(errno_of(spec), E2BIG);
}

TEST_F(RealHostTest, AnotherProgramMayRunUnderAName) {
  SpawnSpec spec = shell("");
  spec.program = "/bin/sh";
  spec.argv = {"aiacc-agent", "-c", "echo $0"};
  EXPECT_EQ(output_of(spec), "aiacc-agent\n");
}

TEST_F(RealHostTest, BindingIsTheSpecs) {
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  unsigned last = 0;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &usable)) last = cpu;
  }
  SpawnSpec spec = shell("exec grep Cpus_allowed_list /proc/self/status");
  spec.binding = {last};
  EXPECT_EQ(output_of(spec), "Cpus_allowed_list:\t" + std::to_string(last) + "\n");
}

TEST_F(RealHostTest, ABindingThatTheKernelRefusesIsToldAndTheProgramRuns) {
  SpawnSpec spec = shell("exit 3");
  spec.binding = {4000};
  const std::unique_ptr<Process> process = fixture_.host().spawn(spec);
  EXPECT_EQ(process->unbound, EINVAL);
  EXPECT_EQ(fixture_.run(end_of(*process)).code, 3);
  spec.binding.clear();
  const std::unique_ptr<Process> free = fixture_.host().spawn(spec);
  EXPECT_EQ(free->unbound, 0);
  fixture_.run(end_of(*free));
}

TEST_F(RealHostTest, ChildrenGetTheDescriptorLimitBackThatWeStartedWith) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  raise_descriptor_limit();
  rlimit raised{};
  getrlimit(RLIMIT_NOFILE, &raised);
  EXPECT_EQ(raised.rlim_cur, before.rlim_max);
  EXPECT_EQ(output_of(shell("ulimit -S -n")), "256\n");
  EXPECT_EQ(output_of(shell("ulimit -H -n")), std::to_string(before.rlim_max) + "\n");
}

TEST_F(RealHostTest, FailedAndEndedSpawnsLeaveNoDescriptorAndNoZombie) {
  fixture_.run(end_of(*fixture_.host().spawn(shell("true"))));
  const int before = open_descriptors();
  const std::size_t children = descendants_of(getpid(), read_processes()).size();
  for (int i = 0; i < 20; ++i) {
    SpawnSpec spec = shell("exit 0");
    spec.in = SpawnSpec::Stdio::kPipe;
    spec.channel = true;
    fixture_.run(end_of(*fixture_.host().spawn(spec)));
    spec.argv = {"/nonexistent"};
    EXPECT_EQ(errno_of(spec), ENOENT);
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(descendants_of(getpid(), read_processes()).size(), children);
}

TEST_F(RealHostTest, NoDescriptorsLeftForASpawnIsASentence) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(open_descriptors() + 2);
  setrlimit(RLIMIT_NOFILE, &tight);
  SpawnSpec spec = shell("true");
  spec.in = SpawnSpec::Stdio::kPipe;
  const Error error = error_of(spec);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(error.message().find("file descriptors"), std::string::npos) << error.message();
}

TEST(Limits, NoMoreProcessesNamesTheLimitAndTheCure) {
  const Error error = limit_error("cannot start 'x'", EAGAIN);
  EXPECT_NE(error.message().find("ulimit -u"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("pids.max"), std::string::npos);
}

// The intermediate process is killed; its child must die with it.
TEST_F(RealHostTest, AChildDiesWithTheProcessThatSpawnedIt) {
  FdPair report = make_pipe();
  const pid_t between = fork();
  if (between == 0) {
    RealFixture inner;
    RealHost host(inner.loop());
    SpawnSpec spec;
    spec.argv = {"/bin/sleep", "1000"};
    spec.group = SpawnSpec::Group::kNewSession;
    const auto process = host.spawn(spec);
    const ProcessId id = process->id();
    if (write(report.second.get(), &id, sizeof id) < 0) _exit(1);
    pause();
    _exit(1);
  }
  ProcessId grandchild = 0;
  ASSERT_EQ(read(report.first.get(), &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  const char running = fixture_.host().state(grandchild);
  EXPECT_TRUE(running == 'S' || running == 'R') << running;
  kill(between, SIGKILL);
  waitpid(between, nullptr, 0);
  const char state = fixture_.run(
      host_conformance::wait_for_state(fixture_.loop(), fixture_.host(), grandchild, std::string("Z\0", 2)));
  EXPECT_TRUE(state == 'Z' || state == '\0') << state;
  waitpid(grandchild, nullptr, 0);  // it is this process's child if an earlier test made it a subreaper
}

Task<int> next_of(RealSignals& signals) {
  Stop stop;
  co_return co_await signals.next(stop);
}

TEST(RealSignals, ArriveInTheLoop) {
  RealLoop loop;
  RealSignals signals(loop, {SIGUSR1, SIGUSR2});
  kill(getpid(), SIGUSR2);
  EXPECT_EQ(loop.run(next_of(signals)), SIGUSR2);
  kill(getpid(), SIGUSR1);
  EXPECT_EQ(loop.run(next_of(signals)), SIGUSR1);
}

TEST(Procfs, NamesOfProcessesMayHoldAnything) {
  const std::vector<ProcessLine> all{{10, 1, 'S'}, {11, 10, 'R'}, {12, 11, 'Z'}, {13, 1, 'S'}, {9, 12, 'S'}};
  std::vector<ProcessId> found;
  for (const ProcessLine& line : descendants_of(10, all)) found.push_back(line.id);
  EXPECT_EQ(found, (std::vector<ProcessId>{11, 12, 9}));
  EXPECT_EQ(read_process(getpid())->parent, getppid());
  EXPECT_FALSE(read_process(0x7ffffff0).has_value());
}

TEST(Procfs, SmallFilesAreReadWhole) {
  EXPECT_TRUE(read_small_file("/proc/self/status")->starts_with("Name:"));
  EXPECT_EQ(read_small_file("/nonexistent"), std::nullopt);
  EXPECT_THROW(read_small_file("/proc"), Error);
}

}  // namespace
}  // namespace aiacc::io

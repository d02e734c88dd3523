#include "base/io/real_processes.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/io/real_fixture.h"

namespace aiacc::io {
namespace {

// A process that prints its name and lives until it is released; its own child, if any, lives until its pipe is closed.
class Child {
 public:
  explicit Child(bool with_child = false) {
    std::array<int, 2> said{}, held{};
    if (pipe(said.data()) != 0 || pipe(held.data()) != 0) throw std::runtime_error("no pipe");
    id_ = fork();
    if (id_ == 0) {
      close(held[1]);
      RealLoop loop;
      const std::string name = RealProcesses(loop).own_name() + "\n";
      char any = 0;
      if (with_child && fork() == 0) _exit(read(held[0], &any, 1) == 0 ? 0 : 1);
      _exit(write(said[1], name.data(), name.size()) > 0 && read(held[0], &any, 1) == 1 ? 0 : 1);
    }
    close(said[1]);
    close(held[0]);
    said_ = Fd(said[0]);
    held_ = Fd(held[1]);
    char letter = 0;
    while (read(said_.get(), &letter, 1) == 1 && letter != '\n') name_ += letter;
  }
  ~Child() { reap(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& name() const { return name_; }
  pid_t id() const { return id_; }
  void kill() const { ::kill(id_, SIGKILL); }
  void reap() {
    held_ = Fd();
    if (id_ > 0) waitpid(id_, nullptr, 0);
    id_ = -1;
  }

 private:
  pid_t id_ = -1;
  Fd said_, held_;
  std::string name_;
};

class RealProcessesTest : public testing::Test {
 protected:
  bool has_ended(ProcessEnd& end) {
    Stop stop;
    Task<void> waiting = end.wait(stop);
    waiting.start();
    while (fixture_.loop().look()) {
    }
    const bool ended = waiting.done();
    stop.request(std::make_exception_ptr(Error(Code::kAborted, "the test is over")));
    while (!waiting.done()) fixture_.loop().look();
    return ended;
  }
  void wait_for(ProcessEnd& end) {
    Stop stop;
    const Deadline deadline(fixture_.loop(), after(fixture_.loop().now(), std::chrono::seconds(60)), stop, "no end");
    fixture_.run(end.wait(stop));
  }

  RealFixture fixture_;
  RealProcesses processes_{fixture_.loop()};
};

TEST_F(RealProcessesTest, AnEndIsToldThoughItsChildrenHoldItsDescriptors) {
  Child child(true);
  ASSERT_FALSE(child.name().empty());
  const auto end = processes_.watch(child.name());
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->describe(), "process " + std::to_string(child.id()));
  EXPECT_FALSE(has_ended(*end));
  child.kill();
  wait_for(*end);  // the child was not reaped: it is a zombie
  const auto again = processes_.watch(child.name());
  ASSERT_NE(again, nullptr);
  wait_for(*again);
  child.reap();
  const auto reaped = processes_.watch(child.name());
  ASSERT_NE(reaped, nullptr);
  EXPECT_TRUE(has_ended(*reaped));
}

TEST_F(RealProcessesTest, ANameStaysWhateverTheProcessDoes) {
  const std::string before = processes_.own_name();
  const std::vector<char> memory(64 << 20, 'x');
  Child child;
  EXPECT_EQ(processes_.own_name(), before);
  const auto began = [](const std::string& name) { return std::stoull(name.substr(name.rfind(' '))); };
  EXPECT_LE(began(before), began(child.name()));
}

TEST_F(RealProcessesTest, ANumberThatIsUsedAgainIsAnotherProcess) {
  const Child child;
  std::string before = child.name();
  before.back() = before.back() == '0' ? '1' : '0';
  const auto end = processes_.watch(before);
  ASSERT_NE(end, nullptr);
  EXPECT_TRUE(has_ended(*end));
}

TEST_F(RealProcessesTest, WhatCannotBeSeenFromHere) {
  const Child child;
  EXPECT_EQ(processes_.watch(""), nullptr);
  EXPECT_EQ(processes_.watch("1 2"), nullptr);
  EXPECT_EQ(processes_.watch(child.name() + "x"), nullptr);
  EXPECT_EQ(processes_.watch("other " + child.name()), nullptr) << "of other namespaces";
  EXPECT_EQ(processes_.watch(processes_.own_name()), nullptr) << "this process";
  EXPECT_EQ(processes_.own_name(), RealProcesses(fixture_.loop()).own_name());
}

// As behind the seccomp filters of older container runtimes.
TEST_F(RealProcessesTest, WhoMayNotWatchOthersHasNoName) {
  constexpr int kNoFilters = 77;
  const pid_t child = fork();
  if (child == 0) {
    std::array<sock_filter, 4> steps = {sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
                                        sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_pidfd_open},
                                        sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
                                        sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    const sock_fprog filter{steps.size(), steps.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
      _exit(kNoFilters);
    }
    _exit(processes_.own_name().empty() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kNoFilters) GTEST_SKIP() << "no seccomp filter can be set here";
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(processes_.own_name().empty());
}

TEST_F(RealProcessesTest, MostDescriptorsAreLeftToTheProgram) {
  const Child child;
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{40, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  std::vector<std::unique_ptr<ProcessEnd>> ends;
  for (int i = 0; i < 40; ++i) ends.push_back(processes_.watch(child.name()));
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(ends[9], nullptr);
  EXPECT_EQ(ends[10], nullptr);
}

}  // namespace
}  // namespace aiacc::io

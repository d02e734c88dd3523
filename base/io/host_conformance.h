// The conformance suite of Host, real or simulated.
//
// A Fixture gives: Loop& loop(); io::Host& host(); template <class T> T run(Task<T>), which drives the loop until the task
// ends; SpawnSpec program(TestProgram), which starts what the enumeration describes (real: a shell; simulated: a
// coroutine registered under that name). The suite sets stdio, group and channel itself.
// Use: INSTANTIATE_TYPED_TEST_SUITE_P(Name, HostConformance, MyFixture).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "base/io/host.h"
#include "base/task/scope.h"

namespace aiacc::io {

enum class TestProgram {
  kExit3,        // exits with 3 at once
  kSleep,        // sleeps until a signal ends it; every signal acts by default
  kEcho,         // copies its standard input to its standard output until the end of it, then exits with 0
  kEchoChannel,  // the same with its channel in both directions
  kPrintWord,    // prints the value of the environment's WORD and exits with 0
  kStubborn,     // ignores SIGTERM, then prints "ready\n", then sleeps
  kParent,       // starts a process that sleeps, then prints "ready\n", then waits for it
  kOrphaner,     // starts a process that sleeps, and exits with 0
  kMissing,      // a program that does not exist
};

namespace host_conformance {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ProcessPtr = std::unique_ptr<Process>;

inline Task<ExitStatus> end_of(Process& process) {
  Stop stop;
  co_return co_await process.wait(stop);
}

inline Task<void> note_end(Process& process, int& ends, Stop& stop) {
  const ExitStatus status = co_await process.wait(stop);
  if (status.ok()) co_return;
  ++ends;
}

inline Task<int> ends_seen_by_two(Loop& loop, Process& process) {
  Stop stop;
  int ends = 0;
  Scope scope(loop, stop);
  scope.spawn(note_end(process, ends, scope.stop()));
  scope.spawn(note_end(process, ends, scope.stop()));
  co_await scope.join();
  co_return ends;
}

// Everything up to the end of the stream.
inline Task<std::string> text_of(Stream& stream) {
  Stop stop;
  std::string text;
  std::vector<std::byte> part(1000);
  for (;;) {
    const std::size_t moved = co_await stream.read_some(part, stop);
    if (moved == 0) co_return text;
    text.append(reinterpret_cast<const char*>(part.data()), moved);
  }
}

inline Task<std::string> line_of(Stream& stream) {
  Stop stop;
  std::string line;
  std::vector<std::byte> one(1);
  while (!line.ends_with('\n')) {
    const std::size_t moved = co_await stream.read_some(one, stop);
    if (moved == 0) break;
    line.push_back(static_cast<char>(one[0]));
  }
  co_return line;
}

inline Task<void> write_text(Stream& stream, std::string text) {
  Stop stop;
  co_await write_all(stream, std::as_bytes(std::span(text)), stop);
}

inline Task<void> request_later(Loop& loop, Stop& stop, Stop& target) {
  co_await sleep_for(loop, milliseconds(5), stop);
  target.request(std::make_exception_ptr(Error(Code::kTimeout, "waited long enough")));
}

inline Task<std::string> sentence_of_stopped_wait(Loop& loop, Process& process) {
  Stop outer;
  Stop target;
  Scope scope(loop, outer);
  scope.spawn(request_later(loop, scope.stop(), target));
  std::string sentence = "the wait ended";
  try {
    co_await process.wait(target);
  } catch (const Error& error) {
    sentence = error.message();
  }
  co_await scope.join();
  co_return sentence;
}

inline Task<int> stop_signal_of(Process& process) {
  Stop stop;
  co_return co_await process.stopped(stop);
}

// What the kernel does to other processes than children comes with no notice: looked at again for a generous while.
inline Task<std::size_t> count_descendants(Loop& loop, Host& host, std::size_t expected) {
  Stop stop;
  const Instant give_up = after(loop.now(), seconds(20));
  for (;;) {
    const std::size_t count = host.descendants().size();
    if (count == expected || loop.now() >= give_up) co_return count;
    co_await sleep_for(loop, milliseconds(2), stop);
  }
}

inline Task<char> wait_for_state(Loop& loop, Host& host, ProcessId process, std::string wanted) {
  Stop stop;
  const Instant give_up = after(loop.now(), seconds(20));
  for (;;) {
    const char state = host.state(process);
    if (wanted.find(state) != std::string::npos || loop.now() >= give_up) co_return state;
    co_await sleep_for(loop, milliseconds(2), stop);
  }
}

}  // namespace host_conformance

template <class Fixture>
class HostConformance : public testing::Test {
 protected:
  using Stdio = SpawnSpec::Stdio;

  // Ends the processes that a test left running.
  ~HostConformance() override {
    for (const ProcessId process : fixture_.host().descendants()) fixture_.host().signal(process, SIGKILL);
    fixture_.run(host_conformance::count_descendants(fixture_.loop(), fixture_.host(), 0));
  }
  SpawnSpec program(TestProgram what) {
    SpawnSpec spec = fixture_.program(what);
    spec.in = Stdio::kNull;
    spec.out = Stdio::kNull;
    return spec;
  }
  host_conformance::ProcessPtr start(TestProgram what, Stdio in = Stdio::kNull, Stdio out = Stdio::kNull) {
    SpawnSpec spec = program(what);
    spec.in = in;
    spec.out = out;
    return fixture_.host().spawn(spec);
  }
  ExitStatus end_of(Process& process) { return fixture_.run(host_conformance::end_of(process)); }

  Fixture fixture_;
};
TYPED_TEST_SUITE_P(HostConformance);

TYPED_TEST_P(HostConformance, AnExitCodeIsTold) {
  const auto process = this->start(TestProgram::kExit3);
  EXPECT_GT(process->id(), 0);
  EXPECT_EQ(this->end_of(*process), (ExitStatus{3, 0}));
  EXPECT_EQ(process->ended(), (ExitStatus{3, 0}));
  EXPECT_EQ(this->end_of(*process), (ExitStatus{3, 0})) << "the second wait";
  EXPECT_EQ(process->ended()->shell_code(), 3);
}

TYPED_TEST_P(HostConformance, AnEndBySignalIsTold) {
  for (const int number : {SIGTERM, SIGKILL}) {
    const auto process = this->start(TestProgram::kSleep);
    EXPECT_FALSE(process->ended().has_value());
    process->signal(number);
    EXPECT_EQ(this->end_of(*process), (ExitStatus{0, number}));
    EXPECT_EQ(process->ended()->shell_code(), 128 + number);
    process->signal(SIGKILL);  // no effect
    process->signal_group(SIGKILL);
  }
}

TYPED_TEST_P(HostConformance, AnyNumberMayWait) {
  const auto process = this->start(TestProgram::kExit3);
  EXPECT_EQ(this->fixture_.run(host_conformance::ends_seen_by_two(this->fixture_.loop(), *process)), 2);
}

TYPED_TEST_P(HostConformance, AMissingProgramIsKnownAtOnceAndNamed) {
  const SpawnSpec spec = this->program(TestProgram::kMissing);
  try {
    this->fixture_.host().spawn(spec);
    FAIL() << "it was started";
  } catch (const SpawnError& error) {
    EXPECT_EQ(error.errno_value(), ENOENT);
    EXPECT_NE(error.message().find(spec.argv[0]), std::string::npos) << error.message();
  }
  EXPECT_TRUE(this->fixture_.host().descendants().empty());
}

TYPED_TEST_P(HostConformance, PipesCarryInputAndOutput) {
  using namespace host_conformance;
  const auto process = this->start(TestProgram::kEcho, SpawnSpec::Stdio::kPipe, SpawnSpec::Stdio::kPipe);
  ASSERT_TRUE(process->in != nullptr && process->out != nullptr);
  EXPECT_TRUE(process->err == nullptr && process->channel == nullptr);
  this->fixture_.run(write_text(*process->in, "twenty-one\n"));
  EXPECT_EQ(this->fixture_.run(line_of(*process->out)), "twenty-one\n");
  this->fixture_.run(write_text(*process->in, "and more"));
  process->in.reset();
  EXPECT_EQ(this->fixture_.run(text_of(*process->out)), "and more");
  EXPECT_TRUE(this->end_of(*process).ok());
}

TYPED_TEST_P(HostConformance, NullInputEndsAtOnce) {
  using namespace host_conformance;
  const auto process = this->start(TestProgram::kEcho, SpawnSpec::Stdio::kNull, SpawnSpec::Stdio::kPipe);
  EXPECT_EQ(this->fixture_.run(text_of(*process->out)), "");
  EXPECT_TRUE(this->end_of(*process).ok());
}

TYPED_TEST_P(HostConformance, TheChannelCarriesBothDirections) {
  using namespace host_conformance;
  SpawnSpec spec = this->program(TestProgram::kEchoChannel);
  spec.channel = true;
  const auto process = this->fixture_.host().spawn(spec);
  ASSERT_TRUE(process->channel != nullptr);
  this->fixture_.run(write_text(*process->channel, "ping\n"));
  EXPECT_EQ(this->fixture_.run(line_of(*process->channel)), "ping\n");
  process->channel->shutdown_write();
  EXPECT_EQ(this->fixture_.run(text_of(*process->channel)), "");
  EXPECT_TRUE(this->end_of(*process).ok());
}

TYPED_TEST_P(HostConformance, TheEnvironmentIsWhatTheSpecSays) {
  using namespace host_conformance;
  SpawnSpec spec = this->program(TestProgram::kPrintWord);
  spec.out = SpawnSpec::Stdio::kPipe;
  spec.env.push_back("WORD=a b=c");
  const auto process = this->fixture_.host().spawn(spec);
  EXPECT_EQ(this->fixture_.run(text_of(*process->out)), "a b=c\n");
  EXPECT_TRUE(this->end_of(*process).ok());
}

TYPED_TEST_P(HostConformance, ASignalThatIsIgnoredEndsNothing) {
  using namespace host_conformance;
  const auto process = this->start(TestProgram::kStubborn, SpawnSpec::Stdio::kNull, SpawnSpec::Stdio::kPipe);
  ASSERT_EQ(this->fixture_.run(line_of(*process->out)), "ready\n");
  process->signal(SIGTERM);
  EXPECT_EQ(this->fixture_.run(sentence_of_stopped_wait(this->fixture_.loop(), *process)), "waited long enough");
  EXPECT_FALSE(process->ended().has_value());
  process->signal_group(SIGKILL);
  EXPECT_EQ(this->end_of(*process), (ExitStatus{0, SIGKILL}));
}

TYPED_TEST_P(HostConformance, AGroupSignalReachesChildrenToo) {
  using namespace host_conformance;
  this->fixture_.host().adopt_orphans();
  for (const auto group : {SpawnSpec::Group::kNewGroup, SpawnSpec::Group::kNewSession}) {
    SpawnSpec spec = this->program(TestProgram::kParent);
    spec.out = SpawnSpec::Stdio::kPipe;
    spec.group = group;
    const auto process = this->fixture_.host().spawn(spec);
    ASSERT_EQ(this->fixture_.run(line_of(*process->out)), "ready\n");
    EXPECT_EQ(this->fixture_.host().descendants().size(), 2u);
    process->signal_group(SIGKILL);
    EXPECT_EQ(this->end_of(*process), (ExitStatus{0, SIGKILL}));
    EXPECT_EQ(this->fixture_.run(count_descendants(this->fixture_.loop(), this->fixture_.host(), 0)), 0u);
  }
}

TYPED_TEST_P(HostConformance, OrphansAreDescendantsUntilTheyEnd) {
  using namespace host_conformance;
  this->fixture_.host().adopt_orphans();
  const auto process = this->start(TestProgram::kOrphaner);
  EXPECT_TRUE(this->end_of(*process).ok());
  ASSERT_EQ(this->fixture_.run(count_descendants(this->fixture_.loop(), this->fixture_.host(), 1)), 1u);
  const ProcessId orphan = this->fixture_.host().descendants().front();
  this->fixture_.host().signal(orphan, SIGKILL);
  EXPECT_EQ(this->fixture_.run(count_descendants(this->fixture_.loop(), this->fixture_.host(), 0)), 0u);
  EXPECT_EQ(
      this->fixture_.run(wait_for_state(this->fixture_.loop(), this->fixture_.host(), orphan, std::string(1, '\0'))),
      '\0')
      << "it was not reaped";
}

TYPED_TEST_P(HostConformance, StopsAreToldEachTime) {
  using namespace host_conformance;
  const auto process = this->start(TestProgram::kSleep);
  for (int round = 0; round < 3; ++round) {
    process->signal(SIGSTOP);
    EXPECT_EQ(this->fixture_.run(stop_signal_of(*process)), SIGSTOP);
    EXPECT_EQ(this->fixture_.host().state(process->id()), 'T');
    process->signal(SIGCONT);
    EXPECT_NE(this->fixture_.run(wait_for_state(this->fixture_.loop(), this->fixture_.host(), process->id(), "RS")),
              'T');
  }
  process->signal(SIGKILL);
  EXPECT_EQ(this->end_of(*process), (ExitStatus{0, SIGKILL}));
  EXPECT_EQ(this->fixture_.host().state(process->id()), '\0');
}

TYPED_TEST_P(HostConformance, ForgettingAProcessDoesNotEndIt) {
  using namespace host_conformance;
  auto process = this->start(TestProgram::kSleep);
  const ProcessId id = process->id();
  process.reset();
  const std::vector<ProcessId> living = this->fixture_.host().descendants();
  EXPECT_EQ(std::count(living.begin(), living.end(), id), 1);
  this->fixture_.host().signal(id, SIGKILL);
  EXPECT_EQ(this->fixture_.run(count_descendants(this->fixture_.loop(), this->fixture_.host(), 0)), 0u);
}

TYPED_TEST_P(HostConformance, ThereIsANameAndMissingFilesAreNone) {
  EXPECT_FALSE(this->fixture_.host().name().empty());
  EXPECT_EQ(this->fixture_.host().read_file("/nonexistent/aiacc"), std::nullopt);
}

REGISTER_TYPED_TEST_SUITE_P(HostConformance, AnExitCodeIsTold, AnEndBySignalIsTold, AnyNumberMayWait,
                            AMissingProgramIsKnownAtOnceAndNamed, PipesCarryInputAndOutput, NullInputEndsAtOnce,
                            TheChannelCarriesBothDirections, TheEnvironmentIsWhatTheSpecSays,
                            ASignalThatIsIgnoredEndsNothing, AGroupSignalReachesChildrenToo,
                            OrphansAreDescendantsUntilTheyEnd, StopsAreToldEachTime, ForgettingAProcessDoesNotEndIt,
                            ThereIsANameAndMissingFilesAreNone);

}  // namespace aiacc::io

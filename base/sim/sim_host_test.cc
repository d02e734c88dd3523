#include "base/sim/sim_host.h"

#include "base/io/host_conformance.h"
#include "base/sim/sim_fixture.h"

namespace aiacc::sim {
namespace {

using io::SpawnSpec;
using io::TestProgram;
using Bytes = std::vector<std::byte>;

Task<int> exit_3(SimSelf&) { co_return 3; }

Task<int> sleep_long(SimSelf& self) {
  co_await sleep_for(self.loop(), std::chrono::hours(1000), self.stop());
  co_return 0;
}

Task<int> echo_between(SimSelf& self, io::Stream& from, io::Stream& to) {
  Bytes part(4096);
  for (;;) {
    const std::size_t moved = co_await from.read_some(part, self.stop());
    if (moved == 0) co_return 0;
    co_await io::write_all(to, std::span(part).first(moved), self.stop());
  }
}

Task<int> echo(SimSelf& self) { return echo_between(self, *self.in, *self.out); }
Task<int> echo_channel(SimSelf& self) { return echo_between(self, *self.channel, *self.channel); }

Task<void> print(SimSelf& self, std::string text) {
  co_await io::write_all(*self.out, std::as_bytes(std::span(text)), self.stop());
}

Task<int> print_word(SimSelf& self) {
  Task<void> printing = print(self, self.env("WORD") + "\n");
  co_await std::move(printing);
  co_return 0;
}

Task<int> stubborn(SimSelf& self) {
  self.ignore(SIGTERM);
  Task<void> printing = print(self, "ready\n");
  co_await std::move(printing);
  co_await sleep_for(self.loop(), std::chrono::hours(1000), self.stop());
  co_return 0;
}

std::unique_ptr<io::Process> start_sleeper(SimSelf& self) {
  SpawnSpec spec;
  spec.argv = {"sleep"};
  spec.group = SpawnSpec::Group::kInherit;
  spec.die_with_parent = false;
  return self.host().spawn(spec);
}

Task<int> parent(SimSelf& self) {
  const std::unique_ptr<io::Process> child = start_sleeper(self);
  Task<void> printing = print(self, "ready\n");
  co_await std::move(printing);
  const io::ExitStatus status = co_await child->wait(self.stop());
  co_return status.shell_code();
}

Task<int> orphaner(SimSelf& self) {
  start_sleeper(self);
  co_return 0;
}

Task<int> catcher(SimSelf& self) {
  io::Signals& signals = self.signals();
  Task<void> printing = print(self, "ready\n");
  co_await std::move(printing);
  const int first = co_await signals.next(self.stop());
  const int second = co_await signals.next(self.stop());
  co_return first * 10 + second;
}

class SimHostFixture : public SimFixture {
 public:
  SimHostFixture() {
    machine_.install("exit-3", exit_3);
    machine_.install("sleep", sleep_long);
    machine_.install("echo", echo);
    machine_.install("echo-channel", echo_channel);
    machine_.install("print-word", print_word);
    machine_.install("stubborn", stubborn);
    machine_.install("parent", parent);
    machine_.install("orphaner", orphaner);
    machine_.install("catcher", catcher);
    machine_.write_file("/etc/motd", "welcome\n");
  }
  io::Host& host() { return self_.host(); }
  SpawnSpec program(TestProgram what) {
    static const char* const names[] = {"exit-3",   "sleep",  "echo",     "echo-channel", "print-word",
                                        "stubborn", "parent", "orphaner", "missing"};
    SpawnSpec spec;
    spec.argv = {names[static_cast<std::size_t>(what)]};
    return spec;
  }

 private:
  SimMachine machine_{world(), network(), 0, "machine"};
  SimSelf& self_{machine_.log_in(loop())};
};

class SimHost : public ::testing::Test {
 protected:
  std::unique_ptr<io::Process> start(const std::string& name, bool die_with_parent = true) {
    SpawnSpec spec;
    spec.argv = {name};
    spec.out = SpawnSpec::Stdio::kPipe;
    spec.die_with_parent = die_with_parent;
    return fixture.host().spawn(spec);
  }
  SimHostFixture fixture;
};

TEST_F(SimHost, AProgramMayCatchItsSignals) {
  const auto process = start("catcher");
  EXPECT_EQ(fixture.run(io::host_conformance::line_of(*process->out)), "ready\n");
  process->signal(SIGTERM);
  process->signal(SIGINT);
  EXPECT_EQ(fixture.run(io::host_conformance::end_of(*process)), (io::ExitStatus{SIGTERM * 10 + SIGINT, 0}));
}

TEST_F(SimHost, AStoppedProcessGetsItsSignalsWhenItGoesOn) {
  const auto process = start("sleep");
  process->signal(SIGSTOP);
  process->signal(SIGTERM);
  fixture.world().run_until(Instant(std::chrono::seconds(1)));
  EXPECT_FALSE(process->ended());
  process->signal(SIGCONT);
  EXPECT_EQ(fixture.run(io::host_conformance::end_of(*process)), (io::ExitStatus{0, SIGTERM}));
}

TEST_F(SimHost, WhoDiesWithItsParentDoes) {
  SimMachine machine(fixture.world(), fixture.network(), 1, "other");
  SimLoop login(fixture.world(), "login");
  machine.install("sleep", sleep_long);
  machine.install("parent", [](SimSelf& self) -> Task<int> {
    SpawnSpec spec;
    spec.argv = {"sleep"};
    self.host().spawn(spec);
    return sleep_long(self);
  });
  SimSelf& self = machine.log_in(login);
  SpawnSpec spec;
  spec.argv = {"parent"};
  const auto process = self.host().spawn(spec);
  fixture.world().run_until(Instant(std::chrono::seconds(1)));
  EXPECT_EQ(self.host().descendants().size(), 2u);
  process->signal(SIGKILL);
  EXPECT_TRUE(self.host().descendants().empty());
}

TEST_F(SimHost, FilesAreWhatWasWritten) { EXPECT_EQ(fixture.host().read_file("/etc/motd"), "welcome\n"); }

}  // namespace
}  // namespace aiacc::sim

namespace aiacc::io {
INSTANTIATE_TYPED_TEST_SUITE_P(Sim, HostConformance, sim::SimHostFixture);
}  // namespace aiacc::io

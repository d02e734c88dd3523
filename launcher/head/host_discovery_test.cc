// The script of --host-discovery-script on a simulated machine: what it prints, how often it runs, and each way in which it fails.
#include "launcher/head/host_discovery.h"

#include <gtest/gtest.h>

#include "base/sim/sim_fixture.h"
#include "base/sim/sim_host.h"
#include "launcher/cli/host_list.h"

namespace aiacc::launcher {
namespace {

using namespace std::chrono_literals;
using sim::SimSelf;

class Script final : public HostSource {
 public:
  io::SpawnSpec script() const override {
    io::SpawnSpec spec;
    spec.argv = {"hosts"};
    spec.out = spec.err = io::SpawnSpec::Stdio::kPipe;
    spec.group = io::SpawnSpec::Group::kNewSession;
    return spec;
  }
  std::vector<HostPlan> hosts_of(const std::string& printed) const override {
    std::vector<HostPlan> hosts;
    for (const HostSpec& spec : parse_host_file("the output of hosts", printed)) {
      HostPlan& host = hosts.emplace_back();
      host.name = spec.name;
      host.slots = spec.slots;
    }
    return hosts;
  }
  HostLink::Settings link_to(const HostPlan&, int) const override { return {}; }
  wire::StartJob job_on(const HostPlan&, int) const override { return {}; }
  std::vector<std::string> environment_of(const RankPlan&, const JobSize&) const override { return {}; }
};

class HostDiscoveryTest : public testing::Test, protected HostDiscovery::Owner, private Root::Owner {
 protected:
  HostDiscoveryTest() {
    machine_.install("hosts", [this](SimSelf& self) { return print(this, &self); });
    HostDiscovery::Owner& owner = *this;
    Root::Owner& watcher = *this;
    discovery_.emplace(fixture_.loop(), self_.host(), script_, owner);
    root_.emplace(fixture_.loop(), discovery_->run(stop_), watcher);
  }
  void TearDown() override {
    stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the test is over")));
    run(1s);
    EXPECT_TRUE(ended_);
    EXPECT_TRUE(self_.host().descendants().empty());
  }
  void run(Duration time) { fixture_.world().run_until(after(fixture_.world().now(), time)); }

  static Task<int> print(HostDiscoveryTest* test, SimSelf* self) {
    ++test->runs_;
    if (test->hangs_) co_await sleep_for(self->loop(), std::chrono::hours(1), self->stop());
    co_await io::write_all(*self->out, std::as_bytes(std::span(test->prints_)), self->stop());
    co_await io::write_all(*self->err, std::as_bytes(std::span(test->complains_)), self->stop());
    co_return test->code_;
  }

  void hosts_listed(const std::vector<HostPlan>& hosts) override { lists_.push_back(hosts); }
  void discovery_failed(const std::string& sentence) override { failures_.push_back(sentence); }
  void discovery_tick() override {}
  void root_ended(Root&, std::exception_ptr) noexcept override { ended_ = true; }

  sim::SimFixture fixture_;
  sim::SimMachine machine_{fixture_.world(), fixture_.network(), 0, "head"};
  SimSelf& self_{machine_.log_in(fixture_.loop())};
  Script script_;
  Stop stop_;
  std::optional<HostDiscovery> discovery_;
  std::optional<Root> root_;
  bool ended_ = false;
  int runs_ = 0;
  bool hangs_ = false;
  int code_ = 0;
  std::string prints_ = "a:2\n";
  std::string complains_;
  std::vector<std::vector<HostPlan>> lists_;
  std::vector<std::string> failures_;
};

TEST_F(HostDiscoveryTest, AsksOnceASecond) {
  root_->start();
  run(10500ms);
  EXPECT_EQ(runs_, 11);
  ASSERT_EQ(lists_.size(), 11u);
  EXPECT_EQ(lists_.back().at(0).name, "a");
  EXPECT_EQ(lists_.back().at(0).slots, 2);
  prints_ = "a\nb:3\n";
  run(1s);
  EXPECT_EQ(lists_.back().size(), 2u);
  EXPECT_TRUE(failures_.empty());
}

TEST_F(HostDiscoveryTest, AFailureIsReportedOnceUntilItWorksAgain) {
  root_->start();
  run(1500ms);
  code_ = 3;
  complains_ = "first\nno cloud\n";
  run(5s);
  EXPECT_EQ(failures_, std::vector<std::string>{"the script hosts, which finds hosts, exited with status 3: no cloud"});
  EXPECT_EQ(lists_.size(), 2u);
  code_ = 0;
  run(2s);
  EXPECT_EQ(lists_.size(), 4u);
  code_ = 3;
  run(2s);
  EXPECT_EQ(failures_.size(), 2u);
}

TEST_F(HostDiscoveryTest, WhatIsNoListOfHostsIsAFailure) {
  root_->start();
  for (const char* printed : {"# nobody\n", "a b c\n", "a:many\n", "-oProxyCommand=x\n", "\x01\xff\n", "a:0\n"}) {
    prints_ = printed;
    failures_.clear();
    run(3s);
    ASSERT_EQ(failures_.size(), 1u) << printed;
    EXPECT_NE(failures_[0].find("the output of hosts"), std::string::npos) << failures_[0];
  }
  EXPECT_TRUE(lists_.empty());
  prints_ = std::string(kHostFileLimit + 1, '#');
  run(3s);
  EXPECT_EQ(failures_.back(), "the script hosts, which finds hosts, printed more than 1048576 bytes");
}

TEST_F(HostDiscoveryTest, AScriptThatHangsIsKilledAtItsLimit) {
  hangs_ = true;
  root_->start();
  run(HostDiscovery::kLimit - 1ms);
  EXPECT_EQ(self_.host().descendants().size(), 1u);
  EXPECT_TRUE(failures_.empty());
  run(2ms);
  EXPECT_TRUE(self_.host().descendants().empty());
  EXPECT_EQ(failures_, std::vector<std::string>{"the script hosts, which finds hosts, did not end within 10 s"});
  run(60s);
  EXPECT_EQ(failures_.size(), 1u);
  hangs_ = false;
  run(12s);
  EXPECT_FALSE(lists_.empty());
}

}  // namespace
}  // namespace aiacc::launcher

// The agent's first messages, over two streams of this process: its description, and jobs that it refuses before a rank
// runs.
#include "launcher/agent/agent.h"

#include <gtest/gtest.h>

#include "base/io/real_clock.h"
#include "base/io/real_host.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "launcher/channel/marker.h"

namespace aiacc::launcher {
namespace {

using namespace std::chrono_literals;

class Platform final : public AgentPlatform {
 public:
  io::Entropy& entropy() override { return entropy_; }
  std::uint32_t user() override { return 0; }
  io::ProcessId process() override { return 1; }
  std::uint16_t hold_port() override { return 4711; }
  std::string program() override { return "/no/such/bin/aiaccrun"; }
  SharedSegment make_segment(int, std::uint64_t) override { return {}; }
  const Topology& topology() override { return topology_; }
  std::vector<std::string> environment() override { return {"PATH=/usr/bin:/bin"}; }
  std::vector<std::string> addresses() override { return {"10.0.0.7"}; }
  std::string machine() override { return "this one"; }

 private:
  io::RealEntropy entropy_;
  Topology topology_ = Topology::synthetic("core:2 pu:1");
};

class AgentTest : public testing::Test, private Root::Owner {
 protected:
  AgentTest() : ended_(loop_) {
    std::tie(to_agent_, agent_in_) = io::stream_pair(loop_, "to the agent");
    std::tie(from_agent_, agent_out_) = io::stream_pair(loop_, "from the agent");
    std::tie(keeper_, agent_keeper_) = io::stream_pair(loop_, "the keeper");
    agent_ = std::make_unique<Agent>(loop_, net_, host_, platform_, *agent_in_, *agent_out_, *agent_keeper_);
    frames_ = std::make_unique<FrameReader>(*from_agent_);
    Root::Owner& owner = *this;
    root_ = std::make_unique<Root>(loop_, agent_->run(stop_), owner);
    root_->start();
  }
  void TearDown() override {
    to_agent_.reset();
    loop_.run_until([this] { return ended_.is_set(); });
  }
  void root_ended(Root&, std::exception_ptr) noexcept override { ended_.set(); }

  template <wire::Message T>
  void send(const T& message) {
    const wire::Bytes bytes = wire::encode_frame(message);
    loop_.run(io::write_all(*to_agent_, bytes, stop_));
  }
  wire::Frame next() {
    Stop patience(stop_);
    Deadline deadline(loop_, loop_.now() + 10s, patience, "no message came");
    std::optional<wire::Frame> frame = loop_.run(frames_->next(patience));
    return frame.value_or(wire::Frame{});
  }
  wire::AgentUp greet(std::int64_t lease_ms = 0) {
    wire::Greeting greeting;
    greeting.version = version_text();
    greeting.marker = "0123456789";
    greeting.lease_ms = lease_ms;
    send(greeting);
    std::string answer(answer_to(greeting.marker).size(), ' ');
    EXPECT_TRUE(loop_.run(io::read_exactly(*from_agent_, std::as_writable_bytes(std::span(answer)), stop_)));
    EXPECT_EQ(answer, answer_to(greeting.marker));
    return next().as<wire::AgentUp>();
  }
  wire::StartJob job() {
    wire::StartJob job;
    job.version = version_text();
    job.host_name = "a";
    job.hosts_of_ranks = {0};
    job.argv = {"true"};
    job.cwd = "/";
    job.environment = {"PATH=/usr/bin:/bin"};
    job.ranks.resize(1);
    job.credit = 1000;
    return job;
  }

  io::RealLoop loop_;
  io::RealNet net_{loop_};
  io::RealHost host_{loop_};
  Platform platform_;
  Stop stop_;
  Event ended_;
  std::unique_ptr<io::Stream> to_agent_, agent_in_, from_agent_, agent_out_, keeper_, agent_keeper_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<FrameReader> frames_;
  std::unique_ptr<Root> root_;
};

TEST_F(AgentTest, SaysWhoItIs) {
  const wire::AgentUp up = greet();
  EXPECT_EQ(up.version, version_text());
  EXPECT_EQ(up.addresses, (std::vector<std::string>{"10.0.0.7"}));
  EXPECT_EQ(up.master_port, 4711);
}

TEST_F(AgentTest, AJobOfAnotherVersionIsRefused) {
  greet();
  wire::StartJob other = job();
  other.version = "aiaccrun (aiacc) 0.0.1";
  send(other);
  const auto refusal = next().as<wire::NotStarted>();
  EXPECT_EQ(refusal.exit_code, kExitLauncher);
  EXPECT_EQ(refusal.message, static_cast<std::uint8_t>(MessageId::kRemoteVersion));
}

TEST_F(AgentTest, WhatIsMissingOnItsHostIsSaidBeforeARankRuns) {
  greet();
  wire::StartJob other = job();
  other.argv = {"no-such-program-anywhere"};
  send(other);
  EXPECT_EQ(next().as<wire::NotStarted>().exit_code, kExitNotFound);
}

TEST_F(AgentTest, AMissingDirectoryIsSaidToo) {
  greet();
  wire::StartJob other = job();
  other.cwd = "/no/such/directory";
  send(other);
  const auto refusal = next().as<wire::NotStarted>();
  EXPECT_EQ(refusal.exit_code, kExitUsage);
  EXPECT_NE(refusal.sentence.find("/no/such/directory"), std::string::npos);
}

TEST_F(AgentTest, AMissingPackageIsSaidToo) {
  greet();
  wire::StartJob other = job();
  other.provide = {"horovod"};
  send(other);
  const auto refusal = next().as<wire::NotStarted>();
  EXPECT_EQ(refusal.message, static_cast<std::uint8_t>(MessageId::kProvide));
  EXPECT_NE(refusal.sentence.find("host a has no package horovod"), std::string::npos);
}

TEST_F(AgentTest, NoRankRunsBeforeItIsTold) {
  greet();
  send(job());
  EXPECT_EQ(next().type, wire::Prepared::kType);
  EXPECT_TRUE(host_.descendants().empty());
  send(wire::StartRanks{});
  EXPECT_EQ(next().as<wire::Started>().processes.size(), 1u);
  wire::Frame frame = next();
  while (frame.type == wire::Notice::kType) frame = next();
  EXPECT_EQ(frame.as<wire::RankChanged>().code, 0);
  EXPECT_EQ(next().type, wire::JobEnded::kType);
}

TEST_F(AgentTest, EndsOnlyWhenItsLastMessageHasBeenRead) {
  greet();
  wire::StartJob other = job();
  other.argv = {"no-such-program-anywhere"};
  send(other);
  EXPECT_EQ(next().type, wire::NotStarted::kType);
  auto pause = [this]() -> Task<void> { co_await sleep_for(loop_, 50ms, stop_); };
  loop_.run(pause());
  EXPECT_FALSE(ended_.is_set());
  to_agent_.reset();
  loop_.run_until([this] { return ended_.is_set(); });
}

TEST_F(AgentTest, WhatHasEndedIsToldBeforeTheAnswerToTheQuestion) {
  greet();
  wire::StartJob both = job();
  both.argv = {"sh", "-c", "test $RANK = 0 && exit 7; exec sleep 1000"};
  both.hosts_of_ranks = {0, 0};
  both.ranks.resize(2);
  for (int rank : {0, 1}) {
    both.ranks[static_cast<std::size_t>(rank)].rank = rank;
    both.ranks[static_cast<std::size_t>(rank)].environment = {"RANK=" + std::to_string(rank)};
  }
  send(both);
  EXPECT_EQ(next().type, wire::Prepared::kType);
  send(wire::StartRanks{});
  wire::Frame frame = next();
  while (frame.type == wire::Notice::kType) frame = next();
  const io::ProcessId first = frame.as<wire::Started>().processes.at(0);
  // The agent runs in this thread, so it learns of nothing meanwhile.
  while (host_.state(first) != 'Z' && host_.state(first) != 0) {
  }
  send(wire::QueryExits{});
  do frame = next();
  while (frame.type == wire::Notice::kType);
  EXPECT_EQ(frame.as<wire::RankChanged>().code, 7);
  do frame = next();
  while (frame.type == wire::Notice::kType);
  EXPECT_EQ(frame.type, wire::ExitsReported::kType);
}

TEST_F(AgentTest, InputIsWantedWhenTheRankRunsAndNoMoreWhenItHasEnded) {
  greet();
  wire::StartJob reads = job();
  reads.argv = {"sh", "-c", "read -r line; test \"$line\" = go"};
  reads.input_rank = 0;
  send(reads);
  EXPECT_EQ(next().type, wire::Prepared::kType);
  send(wire::StartRanks{});
  wire::Frame frame = next();
  while (frame.type != wire::InputCredit::kType) frame = next();
  EXPECT_EQ(frame.as<wire::InputCredit>().bytes, InputFeed::kWindow);
  wire::Input input;
  input.bytes = "go\n";
  send(input);
  std::optional<wire::RankChanged> exited;
  bool closed = false;
  for (frame = next(); frame.type != wire::JobEnded::kType; frame = next()) {
    if (frame.type == wire::InputClosed::kType) closed = true;
    if (frame.type == wire::RankChanged::kType) exited = frame.as<wire::RankChanged>();
    ASSERT_NE(frame.type, 0);
  }
  EXPECT_TRUE(closed);
  EXPECT_EQ(exited.value().code, 0);
}

TEST_F(AgentTest, InputThatNobodyAskedForEndsTheChannel) {
  greet();
  wire::Input input;
  input.bytes = "for whom?";
  send(input);
  loop_.run_until([this] { return ended_.is_set(); });
}

TEST_F(AgentTest, EndsWithAChannelThatIsSilent) {
  greet(1);
  loop_.run_until([this] { return ended_.is_set(); });
}

}  // namespace
}  // namespace aiacc::launcher

#include "launcher/head/start_barrier.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace aiacc::launcher {
namespace {

std::vector<wire::RankPorts> tcp(std::vector<std::uint16_t> numbers) {
  std::vector<wire::RankPorts> ports;
  for (const std::uint16_t number : numbers) ports.push_back({{wire::tcp_address(number)}});
  return ports;
}

wire::HostReady ready(std::vector<std::uint16_t> ports, const std::string& version = "1.0") {
  wire::HostReady message;
  message.library_version = version;
  message.ports = tcp(std::move(ports));
  return message;
}

class StartBarrierTest : public testing::Test {
 protected:
  StartBarrierTest() : start_barrier_({{"a", {0, 2}, {}}, {"b", {1}, {}}}) {
    start_barrier_.set_addresses(0, {"10.0.0.1"});
    start_barrier_.set_addresses(1, {"10.0.0.2", "fd00::2"});
  }
  StartBarrier start_barrier_;
};

TEST_F(StartBarrierTest, OpensWhenEveryHostIsReady) {
  EXPECT_FALSE(start_barrier_.ready(1, ready({71})));
  const auto outcome = start_barrier_.ready(0, ready({70, 72}));
  ASSERT_TRUE(outcome && outcome->open && !outcome->refuse);
  EXPECT_EQ(outcome->open->ports, tcp({70, 71, 72}));
  ASSERT_EQ(outcome->open->hosts.size(), 2u);
  EXPECT_EQ(outcome->open->hosts[1].name, "b");
  EXPECT_EQ(outcome->open->hosts[1].addresses, (std::vector<std::string>{"10.0.0.2", "fd00::2"}));
}

TEST_F(StartBarrierTest, ASecondProgramMeetsANewStartBarrier) {
  start_barrier_.ready(0, ready({1, 2}));
  ASSERT_TRUE(start_barrier_.ready(1, ready({3})));
  EXPECT_FALSE(start_barrier_.ready(0, ready({4, 5})));
  EXPECT_EQ(start_barrier_.ready(1, ready({6}))->open->ports, tcp({4, 6, 5}));
}

TEST_F(StartBarrierTest, TheLatestNewsOfAHostCounts) {
  start_barrier_.ready(0, ready({1, 2}));
  start_barrier_.ready(0, ready({3, 4}));
  EXPECT_EQ(start_barrier_.ready(1, ready({9}))->open->ports, tcp({3, 9, 4}));
}

TEST_F(StartBarrierTest, VersionsThatDifferAreOneSentence) {
  start_barrier_.ready(0, ready({1, 2}, "1.0"));
  const auto outcome = start_barrier_.ready(1, ready({3}, "1.1"));
  ASSERT_TRUE(outcome && outcome->refuse && !outcome->open);
  EXPECT_EQ(outcome->refuse->code, static_cast<std::int32_t>(Code::kMismatch));
  EXPECT_EQ(outcome->refuse->sentence,
            "ranks on host a use aiacc 1.0 and ranks on host b aiacc 1.1: all ranks of a job need the same version");
}

TEST_F(StartBarrierTest, AnAgentThatCannotCountIsNotBelieved) {
  EXPECT_THROW(start_barrier_.ready(0, ready({1})), Error);
}

class ElasticStartBarrierTest : public testing::Test {
 protected:
  wire::HostReady report(std::vector<std::uint16_t> ports) {
    wire::HostReady message = ready(std::move(ports));
    message.number = ++reports_;
    return message;
  }
  StartBarrier start_barrier_{{{"a", {0, 2}, {}}, {"b", {1}, {}}}, true};
  std::uint32_t reports_ = 0;
};

TEST_F(ElasticStartBarrierTest, WhoWasInTheLastWorldComesFirstInTheNext) {
  EXPECT_FALSE(start_barrier_.ready(0, report({70, 72})));
  auto outcome = start_barrier_.ready(1, report({71}));
  ASSERT_TRUE(outcome && outcome->open);
  EXPECT_EQ(outcome->open->ranks, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(outcome->open->hosts_of_ranks, (std::vector<std::uint32_t>{0, 1, 0}));
  EXPECT_EQ(outcome->answers, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(start_barrier_.worlds(), 1);

  start_barrier_.exited(0);
  start_barrier_.replaced(0);
  EXPECT_FALSE(start_barrier_.ready(1, report({81})));
  outcome = start_barrier_.ready(0, report({80, 82}));
  ASSERT_TRUE(outcome && outcome->open);
  EXPECT_EQ(outcome->open->ranks, (std::vector<std::int32_t>{1, 2, 0}));
  EXPECT_EQ(outcome->open->hosts_of_ranks, (std::vector<std::uint32_t>{1, 0, 0}));
  EXPECT_EQ(outcome->open->ports, tcp({81, 82, 80}));
  EXPECT_EQ(outcome->answers, (std::vector<std::uint32_t>{4, 3}));
}

TEST_F(ElasticStartBarrierTest, AnExitMakesTheReportOfItsHostVoid) {
  EXPECT_FALSE(start_barrier_.ready(0, report({70, 72})));
  start_barrier_.exited(2);
  EXPECT_FALSE(start_barrier_.ready(1, report({71})));
  EXPECT_TRUE(start_barrier_.ready(0, report({70, 73})));
}

TEST_F(ElasticStartBarrierTest, AHostWithoutRanksIsNotAwaited) {
  EXPECT_FALSE(start_barrier_.ready(0, report({70, 72})));
  const auto outcome = start_barrier_.leave_out(1);
  ASSERT_TRUE(outcome && outcome->open);
  EXPECT_EQ(outcome->open->ranks, (std::vector<std::int32_t>{0, 2}));
  ASSERT_EQ(outcome->open->hosts.size(), 1u);
  EXPECT_EQ(outcome->open->hosts[0].name, "a");
  EXPECT_FALSE(start_barrier_.leave_out(0));
  EXPECT_FALSE(start_barrier_.leave_out(2)) << "nobody is left";
}

TEST(ElasticStartBarrier, AwaitsANewRankOnceItWasAdmitted) {
  StartBarrier barrier({{"a", {0, 1}, {}}}, true, 2);
  ASSERT_TRUE(barrier.ready(0, ready({10, 11})));
  EXPECT_EQ(barrier.add_host("b"), 1);
  EXPECT_EQ(barrier.add_rank(), 2);
  EXPECT_EQ(barrier.add_rank(), 3);
  EXPECT_FALSE(barrier.awaits(2));
  const auto without = barrier.ready(0, ready({12, 13}));
  ASSERT_TRUE(without) << "neither has said hello";
  EXPECT_EQ(without->open->ranks, (std::vector<std::int32_t>{0, 1}));
  barrier.admit(1, 2);
  EXPECT_TRUE(barrier.awaits(2));
  EXPECT_FALSE(barrier.ready(0, ready({14, 15})));
  barrier.admit(0, 3);
  EXPECT_FALSE(barrier.ready(1, ready({22}))) << "host a has reported without rank 3";
  const auto with = barrier.ready(0, ready({16, 17, 18}));
  ASSERT_TRUE(with);
  EXPECT_EQ(with->open->ranks, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(with->open->hosts_of_ranks, (std::vector<std::uint32_t>{0, 0, 1, 0}));
  EXPECT_EQ(with->open->ports, tcp({16, 17, 22, 18}));
}

TEST(ElasticStartBarrier, PortsAreThoseOfTheirRanksInWhateverOrderTheseSaidHello) {
  StartBarrier barrier({{"a", {0}, {}}}, true, 1);
  ASSERT_TRUE(barrier.ready(0, ready({10})));
  EXPECT_EQ(barrier.add_host("b"), 1);
  for (const int number : {1, 2}) EXPECT_EQ(barrier.add_rank(), number);
  for (const int late : {2, 1}) barrier.admit(1, late);
  EXPECT_FALSE(barrier.ready(0, ready({11})));
  const auto outcome = barrier.ready(1, ready({21, 22}));
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->open->ranks, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(outcome->open->ports, tcp({11, 21, 22}));
}

TEST(ElasticStartBarrier, WaitsWhileThereAreTooFewAndIgnoresReportsFromBefore) {
  StartBarrier barrier({{"a", {0, 1}, {}}}, true, 2);
  ASSERT_TRUE(barrier.ready(0, ready({10, 11})));
  barrier.exited(1);
  EXPECT_FALSE(barrier.leave_out(1));
  EXPECT_FALSE(barrier.ready(0, ready({12, 13}))) << "sent before the agent knew";
  EXPECT_FALSE(barrier.ready(0, ready({14}))) << "one is too few";
  EXPECT_EQ(barrier.add_rank(), 2);
  barrier.admit(0, 2);
  const auto outcome = barrier.ready(0, ready({15, 16}));
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->open->ranks, (std::vector<std::int32_t>{0, 2}));
}

}  // namespace
}  // namespace aiacc::launcher

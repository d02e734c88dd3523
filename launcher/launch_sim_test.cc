// A whole launch in virtual time. Whichever process is killed, frozen or disconnected, at whatever moment: nothing outlives the job,
// and the time bounds hold exactly, because virtual time passes only while the code waits.
#include <gtest/gtest.h>

#include <csignal>

#include "launcher/launch_sim_world_test.h"

namespace aiacc::launcher {
namespace {

class Launch : public testing::TestWithParam<const char*> {};

TEST(LaunchInVirtualTime, ARankThatFailsEndsTheJobWithItsCode) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Cluster cluster(seed);
    cluster.fails = static_cast<int>(seed % (kHosts * kRanksOfHost));
    cluster.world.run_until(Instant(500ms));
    EXPECT_EQ(cluster.left().size(), 2u + 4u * kHosts) << text_of(cluster.left());
    cluster.world.run_until(Instant(1s + kBound));
    EXPECT_EQ(cluster.exit_code, std::optional(7)) << seed;
    EXPECT_EQ(text_of(cluster.left()), "") << seed;
  }
}

TEST(LaunchInVirtualTime, MachinesThatOnlySayTheSameAreSeveral) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Cluster cluster(seed);
    cluster.alike = true;
    cluster.fails = 1;
    cluster.world.run_until(Instant(500ms));
    EXPECT_EQ(cluster.left().size(), 2u + 4u * kHosts) << text_of(cluster.left());
    cluster.world.run_until(Instant(1s + kBound));
    EXPECT_EQ(cluster.exit_code, std::optional(7)) << seed;
    EXPECT_TRUE(cluster.same_machines.empty());
  }
}

TEST(LaunchInVirtualTime, TwoNamesOfOneMachineAreFoundBeforeARankRuns) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Cluster cluster(seed);
    cluster.twice = 2 + static_cast<int>(seed % 2);
    cluster.world.run_until(Instant(500ms));
    EXPECT_EQ(text_of(cluster.left()), "") << "seed " << seed << ": all are let go";
    EXPECT_EQ(cluster.exit_code, std::optional(0)) << seed;
    const std::vector<std::vector<int>> same = {{cluster.twice - 2, cluster.twice - 1}};
    EXPECT_EQ(cluster.same_machines, same) << seed;
    EXPECT_FALSE(cluster.born.contains({1, "rank"}));
  }
}

TEST(LaunchInVirtualTime, WhoeverIsKilledWhileMachinesAreComparedNothingIsLeft) {
  int struck = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Cluster cluster(seed);
    cluster.twice = 2 + static_cast<int>(seed % 2);
    sim::Random random(seed * 7919);
    cluster.world.run_until(after(cluster.world.now(), Duration(random.below(2'000'000))));
    const std::string role = std::array{"aiaccrun", "ssh", "keeper", "agent"}[seed % 4];
    const int host = role == "aiaccrun" || role == "ssh" ? 0 : 1;
    const std::vector<io::ProcessId> victims = cluster.living(host, role);
    if (victims.empty()) continue;
    ++struck;
    cluster.signal(host, victims[random.below(victims.size())], SIGKILL);
    cluster.world.run_until(after(cluster.world.now(), kBound));
    EXPECT_EQ(text_of(cluster.left()), "") << "seed " << seed << ", " << role;
  }
  EXPECT_GT(struck, 20);
}

TEST_P(Launch, NothingOutlivesWhoIsKilledAtAnyMoment) {
  int struck = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Cluster cluster(seed);
    sim::Random random(seed * 7919);
    const bool starting = seed % 3 != 0;
    cluster.world.run_until(after(cluster.world.now(), Duration(random.below(starting ? 15'000'000 : 3'000'000'000))));
    const int host = place_of(GetParam(), random);
    const std::vector<io::ProcessId> victims = cluster.living(host, GetParam());
    if (victims.empty()) continue;  // no such process yet
    ++struck;
    cluster.signal(host, victims[random.below(victims.size())], SIGKILL);
    const Instant when = cluster.world.now();
    cluster.world.run_until(after(when, kBound));
    EXPECT_EQ(text_of(cluster.left()), "") << "seed " << seed << ", killed at " << seconds(when.time_since_epoch());
    if (std::string(GetParam()) != "aiaccrun") {
      EXPECT_EQ(cluster.exit_code, std::optional(std::string(GetParam()) == "rank" ? 128 + SIGKILL : kExitLauncher));
    }
  }
  EXPECT_GT(struck, 20);
}
INSTANTIATE_TEST_SUITE_P(Roles, Launch, testing::Values("aiaccrun", "ssh", "keeper", "agent", "rank"));

TEST(LaunchInVirtualTime, ASilentHeadIsLostAfterItsLease) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Cluster cluster(seed);
    cluster.world.run_until(Instant(1s + seed * 137ms));
    const io::ProcessId head = cluster.living(0, "aiaccrun").at(0);
    const Instant when = cluster.world.now();
    cluster.signal(0, head, SIGSTOP);
    cluster.world.run_until(after(when, kLease - 2s));
    EXPECT_EQ(cluster.left({0}).size(), 4u * kHosts) << "nobody ends before the lease";
    cluster.world.run_until(after(when, kLease + kBound));
    EXPECT_EQ(text_of(cluster.left({0})), "") << seed;
    cluster.signal(0, head, SIGCONT);
    cluster.world.run_until(after(cluster.world.now(), kBound));
    EXPECT_EQ(text_of(cluster.left()), "") << seed;
    EXPECT_EQ(cluster.exit_code, std::optional(kExitLauncher));
  }
}

TEST(LaunchInVirtualTime, ASilentAgentIsLostAfterItsLease) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Cluster cluster(seed);
    cluster.world.run_until(Instant(1s + seed * 137ms));
    const int host = 1 + static_cast<int>(seed % kHosts);
    const io::ProcessId agent = cluster.living(host, "agent").at(0);
    const Instant when = cluster.world.now();
    cluster.signal(host, agent, SIGSTOP);
    cluster.world.run_until(after(when, kLease - 2s));
    EXPECT_FALSE(cluster.exit_code) << "nobody ends before the lease";
    cluster.world.run_until(after(when, kLease + kBound));
    EXPECT_EQ(cluster.exit_code, std::optional(kExitLauncher)) << seed;
    EXPECT_EQ(text_of(cluster.left({host})), "") << seed;
    cluster.signal(host, agent, SIGCONT);  // its channel has ended meanwhile
    cluster.world.run_until(after(cluster.world.now(), kBound));
    EXPECT_EQ(text_of(cluster.left()), "") << seed;
  }
}

TEST(LaunchInVirtualTime, ACutNetworkEndsBothSidesAfterTheLease) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Cluster cluster(seed);
    cluster.world.run_until(Instant(1s + seed * 137ms));
    const int host = 1 + static_cast<int>(seed % kHosts);
    const Instant when = cluster.world.now();
    cluster.network.cut(0, host);
    cluster.world.run_until(after(when, kLease + kBound));
    EXPECT_EQ(cluster.exit_code, std::optional(kExitLauncher)) << seed;
    EXPECT_EQ(text_of(cluster.left()), "") << seed;
  }
}

TEST(LaunchInVirtualTime, AJobWithSpareRanksGoesOnWithoutALostHost) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Cluster cluster(seed, kRanksOfHost + 1);
    cluster.world.run_until(Instant(1s + seed * 137ms));
    const int host = 1 + static_cast<int>(seed % kHosts);
    if (seed % 2 == 0) {
      cluster.network.cut(0, host);
    } else {
      cluster.signal(host, cluster.living(host, "agent").at(0), SIGKILL);
    }
    cluster.world.run_until(after(cluster.world.now(), kLease + kBound));
    EXPECT_FALSE(cluster.exit_code) << seed;
    for (const std::string& one : cluster.left()) EXPECT_FALSE(one.ends_with(Cluster::name_of(host))) << one;
    const int next = host % kHosts + 1;
    EXPECT_EQ(cluster.living(next, "rank").size(), 2u) << seed;
    cluster.network.cut(0, next);
    cluster.world.run_until(after(cluster.world.now(), kLease + kBound));
    EXPECT_EQ(cluster.exit_code, std::optional(kExitLauncher)) << seed << ": too few are left";
    EXPECT_EQ(text_of(cluster.left()), "") << seed;
  }
}

TEST(LaunchInVirtualTime, ANewRankTakesThePlaceOfAFailedOneAndEndsWithTheJob) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    Cluster cluster(seed, 1, true);
    cluster.world.run_until(Instant(1s + seed * 137ms));
    const int host = 1 + static_cast<int>(seed % kHosts);
    for (const std::size_t left : {kRanksOfHost, kRanksOfHost - 1}) {  // who fails before it joined is not replaced
      cluster.signal(host,
                     left == kRanksOfHost ? cluster.living(host, "rank").at(seed % kRanksOfHost)
                                          : cluster.born.at({host, "rank"}).back(),
                     SIGKILL);
      cluster.world.run_until(after(cluster.world.now(), kBound));
      EXPECT_EQ(cluster.living(host, "rank").size(), left) << seed;
      EXPECT_EQ(cluster.born.at({host, "rank"}).size(), kRanksOfHost + 1u) << seed;
      EXPECT_FALSE(cluster.exit_code) << seed;
    }
    cluster.signal(0, cluster.living(0, "aiaccrun").at(0), seed % 2 == 0 ? SIGINT : SIGKILL);
    cluster.world.run_until(after(cluster.world.now(), kBound));
    EXPECT_EQ(text_of(cluster.left()), "") << seed;
  }
}

TEST(LaunchInVirtualTime, AJobThatItsUserStoppedIsNotSilent) {
  Cluster cluster(5);
  cluster.world.run_until(Instant(1s));
  const io::ProcessId head = cluster.living(0, "aiaccrun").at(0);
  cluster.signal(0, head, SIGTSTP);
  cluster.world.run_until(Instant(1s + 4 * kLease));
  EXPECT_EQ(cluster.left().size(), 2u + 4u * kHosts) << text_of(cluster.left());
  cluster.signal(0, head, SIGCONT);
  cluster.world.run_until(Instant(1s + 8 * kLease));
  EXPECT_EQ(cluster.left().size(), 2u + 4u * kHosts) << text_of(cluster.left());
  cluster.signal(0, head, SIGINT);
  cluster.world.run_until(after(cluster.world.now(), kBound));
  EXPECT_EQ(text_of(cluster.left()), "");
  EXPECT_EQ(cluster.exit_code, std::optional(128 + SIGINT));
}

// The lie comes from the second host, whose ranks are 2 and 3.
TEST(LaunchInVirtualTime, AnAgentThatSpeaksOfOthersRanksIsLost) {
  const auto run = [](const auto& lie) {
    Cluster cluster(5);
    cluster.lies = 2;
    cluster.lie = wire::encode_frame(lie);
    cluster.world.run_until(Instant(1s + kBound));
    EXPECT_EQ(text_of(cluster.left()).empty(), cluster.exit_code.has_value());
    return cluster.exit_code;
  };
  wire::Output output;
  for (const int rank : {-1, 1, 4, 6}) {
    output.rank = rank;
    EXPECT_EQ(run(wire::LoseRank{rank, "it is dead"}), std::optional(kExitLauncher)) << rank;
    EXPECT_EQ(run(output), std::optional(kExitLauncher)) << rank;
    wire::RankChanged changed;
    changed.rank = rank;
    EXPECT_EQ(run(changed), std::optional(kExitLauncher)) << rank;
  }
  EXPECT_EQ(run(wire::InputCredit{100}), std::optional(kExitLauncher)) << "rank 0 reads the input";
  EXPECT_EQ(run(wire::InputClosed{}), std::optional(kExitLauncher));
  for (const int rank : {2, 3}) {
    output.rank = rank;
    EXPECT_EQ(run(wire::LoseRank{rank, "it is dead"}), std::nullopt) << rank;
    EXPECT_EQ(run(output), std::nullopt) << rank;
  }
}

// The agent of the second host says after a second that rank 2 has called aiacc_init, and nobody else does.
TEST(LaunchInVirtualTime, TheUserIsToldWhomRanksWaitFor) {
  Cluster cluster(5);
  cluster.lies = 2;
  wire::RankChanged waits;
  waits.rank = 2;
  waits.phase = static_cast<std::uint8_t>(RankPhase::kConnected);
  cluster.lie = wire::encode_frame(waits);
  const auto words = [&cluster](int seconds) {
    return fmt::format(
        "ranks have waited in aiacc_init for {} s: 1 of 6 ranks called aiacc_init: rank 2 on host h2; ranks 0-1 on "
        "host "
        "h1, rank 3 on host h2, ranks 4-5 on host h3 did not [AR-WAITING]\n",
        seconds);
  };
  cluster.world.run_until(Instant(21s - 100ms));
  EXPECT_EQ(*cluster.said, "");
  cluster.world.run_until(Instant(21s + 100ms));
  EXPECT_EQ(*cluster.said, "aiaccrun: " + words(20));
  cluster.world.run_until(Instant(81s + 100ms));
  EXPECT_EQ(*cluster.said, "aiaccrun: " + words(20) + "aiaccrun: " + words(80));
  EXPECT_FALSE(cluster.exit_code);
}

TEST(LaunchInVirtualTime, NobodyIsToldOfRanksThatAreInTheirWorld) {
  Cluster cluster(5);
  cluster.lies = 2;
  for (const RankPhase phase : {RankPhase::kConnected, RankPhase::kInitialised, RankPhase::kFinalized}) {
    wire::RankChanged change;
    change.rank = 2;
    change.phase = static_cast<std::uint8_t>(phase);
    const wire::Bytes frame = wire::encode_frame(change);
    cluster.lie.insert(cluster.lie.end(), frame.begin(), frame.end());
  }
  cluster.world.run_until(Instant(100s));
  EXPECT_EQ(*cluster.said, "");
}

// Rank 2 waits for the second world, and only then the report comes that rank 3 has entered the first one.
TEST(LaunchInVirtualTime, ALateReportOfTheLastWorldEndsNoWait) {
  Cluster cluster(5);
  cluster.lies = 2;
  const std::vector<std::pair<int, RankPhase>> reports = {{2, RankPhase::kConnected},   {3, RankPhase::kConnected},
                                                          {2, RankPhase::kInitialised}, {2, RankPhase::kFinalized},
                                                          {2, RankPhase::kConnected},   {3, RankPhase::kInitialised}};
  for (const auto& [rank, phase] : reports) {
    wire::RankChanged change;
    change.rank = rank;
    change.phase = static_cast<std::uint8_t>(phase);
    const wire::Bytes frame = wire::encode_frame(change);
    cluster.lie.insert(cluster.lie.end(), frame.begin(), frame.end());
  }
  cluster.world.run_until(Instant(22s));
  EXPECT_TRUE(cluster.said->starts_with("aiaccrun: ranks have waited in aiacc_init for 20 s: ")) << *cluster.said;
}

TEST(LaunchInVirtualTime, AStoppedRankEndsNothing) {
  Cluster cluster(5);
  cluster.world.run_until(Instant(1s));
  const io::ProcessId rank = cluster.living(2, "rank").at(1);
  cluster.signal(2, rank, SIGSTOP);
  cluster.world.run_until(Instant(1s + 4 * kLease));
  EXPECT_EQ(cluster.left().size(), 2u + 4u * kHosts) << text_of(cluster.left());
  cluster.signal(0, cluster.living(0, "aiaccrun").at(0), SIGINT);
  const Instant when = cluster.world.now();
  cluster.world.run_until(after(when, kBound));
  EXPECT_EQ(text_of(cluster.left()), "");
  EXPECT_EQ(cluster.exit_code, std::optional(128 + SIGINT));
}

}  // namespace
}  // namespace aiacc::launcher

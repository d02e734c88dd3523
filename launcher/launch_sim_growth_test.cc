// A job that gets hosts while it runs, in virtual time: where its ranks are, what a script or a host does wrong, and that nothing
// outlives it. Its ranks call no function of the library, so new ones never join a world.
#include <gtest/gtest.h>

#include <csignal>

#include "launcher/launch_sim_world_test.h"

namespace aiacc::launcher {
namespace {

constexpr Duration kFound = HostDiscovery::kInterval + 100ms;  // from a new list to ranks

// Begins with 4 ranks on h1 and h2; the script knows no more at first.
class Growing : public Cluster {
 public:
  explicit Growing(std::uint64_t seed, int least = 1, int most_ranks = 6, Duration patience = {})
      : Cluster(seed, least) {
    elastic_timeout = patience;
    begins = 2;
    most = most_ranks;
    listed = "h1:2\nh2:2\n";
    world.run_until(Instant(3s));
    EXPECT_EQ(ranks(), "2 2 0") << seed;
  }
  // Of each host.
  std::string ranks() const {
    std::string text;
    for (int host = 1; host <= kHosts; ++host) {
      text += (host == 1 ? "" : " ") + std::to_string(living(host, "rank").size());
    }
    return text;
  }
  void run(Duration time) { world.run_until(after(world.now(), time)); }
  void end_by(int number) {
    signal(0, living(0, "aiaccrun").at(0), number);
    run(kBound);
    EXPECT_EQ(text_of(left()), "") << "after signal " << number;
  }
};

TEST(GrowthInVirtualTime, RanksAreStartedOnAHostThatIsFound) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Growing cluster(seed);
    cluster.listed += "h3:2\n";
    cluster.run(kFound);
    EXPECT_EQ(cluster.ranks(), "2 2 2") << seed;
    cluster.listed += "h1:2\n";  // its slots are added up, and no more ranks are allowed
    cluster.run(5s);
    EXPECT_EQ(cluster.ranks(), "2 2 2") << seed;
    cluster.end_by(seed % 2 == 0 ? SIGINT : SIGKILL);
  }
}

TEST(GrowthInVirtualTime, SlotsThatAreAddedToAHostGetRanks) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Growing cluster(seed);
    cluster.listed = "h1:2\nh2:4\nh3:1\n";
    cluster.run(kFound);
    EXPECT_EQ(cluster.ranks(), "2 4 0") << seed << ": 6 are allowed";
    cluster.signal(2, cluster.living(2, "rank").at(3), SIGKILL);
    cluster.run(kFound);
    EXPECT_EQ(cluster.ranks(), "2 3 1") << seed << ": a new one goes where none has failed";
    cluster.end_by(SIGTERM);
  }
}

TEST(GrowthInVirtualTime, AScriptThatFailsChangesNothing) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Growing cluster(seed);
    if (seed % 3 == 0) cluster.listed = "h1:2 h2:2 h3:2\n";
    if (seed % 3 == 1) cluster.script_code = 1;
    if (seed % 3 == 2) cluster.script_hangs = true;
    cluster.run(25s);
    EXPECT_EQ(cluster.ranks(), "2 2 0") << seed;
    EXPECT_LE(cluster.living(0, "script").size(), 1u);
    EXPECT_FALSE(cluster.exit_code);
    cluster.script_hangs = false;
    cluster.script_code = 0;
    cluster.listed = "h1:2\nh2:2\nh3:2\n";
    cluster.run(HostDiscovery::kLimit + kFound);
    EXPECT_EQ(cluster.ranks(), "2 2 2") << seed;
    cluster.end_by(SIGINT);
  }
}

TEST(GrowthInVirtualTime, AHostThatDoesNotComeUpIsTriedAgainLater) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Growing cluster(seed);
    cluster.network.cut(0, 3);
    cluster.listed += "h9:1\nh3:2\n";
    cluster.run(60s);
    EXPECT_EQ(cluster.ranks(), "2 2 0") << seed;
    EXPECT_FALSE(cluster.exit_code) << seed;
    const std::size_t tries = cluster.born.at({0, "ssh"}).size() - 2;
    EXPECT_TRUE(tries >= 4 && tries <= 12) << tries << ": two hosts, each after longer and longer";
    cluster.network.heal(0, 3);
    cluster.run(150s);
    EXPECT_EQ(cluster.ranks(), "2 2 2") << seed;
    cluster.end_by(SIGINT);
  }
}

// These ranks do not initialise, so that a new one may do what the job is to do.
TEST(GrowthInVirtualTime, ANewRankThatFinishesIsNotStartedAgain) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Growing cluster(seed);
    cluster.leaves_at_once = 3;
    cluster.listed += "h3:1\n";
    cluster.run(60s);
    EXPECT_EQ(cluster.ranks(), "2 2 0") << seed;
    EXPECT_EQ(cluster.born.at({3, "rank"}).size(), 1u) << seed;
    EXPECT_FALSE(cluster.exit_code) << seed;
    cluster.end_by(SIGINT);
  }
}

TEST(GrowthInVirtualTime, RanksOfALostHostGoToOthers) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Growing cluster(seed, 1, 4);
    cluster.listed += "h3:2\n";
    cluster.run(kFound);
    EXPECT_EQ(cluster.ranks(), "2 2 0") << seed << ": 4 are allowed";
    cluster.signal(2, cluster.living(2, "agent").at(0), SIGKILL);
    cluster.run(kBound);
    EXPECT_EQ(cluster.ranks(), "2 0 2") << seed;
    cluster.end_by(SIGINT);
  }
}

TEST(GrowthInVirtualTime, RanksOfAHostThatVanishedMayExit) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Growing cluster(seed, 1, 4);
    cluster.listed = "h1:2\nh3:2\n";
    cluster.run(kFound);
    EXPECT_EQ(cluster.ranks(), "2 2 2") << seed << ": those of h2 leave when their world ends";
    for (const io::ProcessId rank : cluster.living(2, "rank")) cluster.signal(2, rank, SIGKILL);
    cluster.run(kBound);
    EXPECT_EQ(cluster.ranks(), "2 0 2") << seed;
    EXPECT_TRUE(cluster.living(2, "agent").empty()) << seed;
    cluster.listed = "h3:2\n";
    cluster.run(kBound);
    EXPECT_EQ(cluster.ranks(), "2 0 2") << seed << ": the ranks of h3 have no state, so those of h1 stay";
    EXPECT_FALSE(cluster.exit_code) << seed;
    cluster.end_by(seed % 2 == 0 ? SIGINT : SIGKILL);
  }
}

TEST(GrowthInVirtualTime, AJobOfTooFewRanksEndsAtItsTime) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Growing cluster(seed, 4, 4, 20s);
    cluster.signal(1, cluster.living(1, "rank").at(0), SIGKILL);
    cluster.run(20s - 1ms);
    EXPECT_FALSE(cluster.exit_code) << seed;
    EXPECT_EQ(cluster.ranks(), "2 2 0") << seed << ": a new one was started, and is in no world";
    cluster.run(kBound);
    EXPECT_EQ(cluster.exit_code, std::optional(kExitTimeout)) << seed;
    EXPECT_EQ(text_of(cluster.left()), "") << seed;
  }
}

TEST(GrowthInVirtualTime, WhoeverIsKilledWhileTheJobGrowsNothingIsLeft) {
  int struck = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    Growing cluster(seed);
    sim::Random random(seed * 7919);
    cluster.listed = "h1:3\nh2:2\nh3:2\n";
    cluster.run(Duration(random.below(1'200'000'000)));
    const std::string role = std::array{"aiaccrun", "ssh", "keeper", "agent", "rank", "script"}[seed % 6];
    const int host =
        role == "aiaccrun" || role == "ssh" || role == "script" ? 0 : 1 + static_cast<int>(random.below(3));
    const std::vector<io::ProcessId> victims = cluster.living(host, role);
    if (victims.empty()) continue;
    ++struck;
    cluster.signal(host, victims[random.below(victims.size())], SIGKILL);
    cluster.run(kBound);
    if (role == "aiaccrun") {
      EXPECT_EQ(text_of(cluster.left()), "") << "seed " << seed;
      continue;
    }
    EXPECT_FALSE(cluster.exit_code) << "seed " << seed << ", " << role;
    cluster.run(10s);
    const std::string ranks = cluster.ranks();
    EXPECT_EQ(ranks.at(0) + ranks.at(2) + ranks.at(4), 3 * '0' + 6) << "seed " << seed << ", " << role << ": " << ranks;
    cluster.end_by(SIGTERM);
  }
  EXPECT_GT(struck, 50);
}

}  // namespace
}  // namespace aiacc::launcher

// Ranks of one host that see the ends of each other's processes: deaths while rank 0 computes, and breaks that are none.
#include "runtime/rendezvous/rendezvous_sim_world_test.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using namespace rendezvous_sim;

// Ranks 0 and 1 share a host, and so do ranks 2 to 4.
struct TwoHosts : RendezvousJob {
  explicit TwoHosts(std::uint64_t seed = 1) : RendezvousJob(5, seed) {
    for (const int one : {1, 3, 4}) rank(one).first = one == 1 ? 0 : 2;
    for (const auto& one : ranks) one->start();
    expect_met();
  }
  void pass(Duration time) {
    run_until([] { return false; }, time);
  }
  void kill(int one) { world.kill(rank(one).node.loop.node()); }
  void expect_lost(int lost, const std::vector<int>& by) {
    for (const int one : by) ASSERT_EQ(rank(one).lost.ranks, std::vector<int>{lost}) << one;
  }
};

TEST(SimLocalPeers, ADeathIsHeardOnItsHostWhileRankZeroComputes) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    TwoHosts job(seed);
    job.world.freeze(job.rank(0).node.loop.node());
    job.kill(3);
    job.pass(10ms);
    job.expect_lost(3, {2, 4});
    EXPECT_TRUE(job.rank(1).lost.ranks.empty()) << "another host's: rank 0 will tell it";
    job.world.thaw(job.rank(0).node.loop.node());
    job.pass(1s);
    job.expect_lost(3, {0, 1, 2, 4});
    EXPECT_EQ(job.rank(2).lost.sentences, job.rank(4).lost.sentences);
    EXPECT_EQ(job.rank(2).lost.sentences[0].find("rank 3 on host host3 ended without leaving the job: process "), 0u)
        << job.rank(2).lost.sentences[0];
  }
}

// Rank 0 cannot see it: the network to that host fell silent. Its local peers say it, again if the connection breaks.
TEST(SimLocalPeers, RankZeroBelievesTheLocalPeersOfTheDead) {
  for (int when = 0; when < 400; when += 20) {
    TwoHosts job(static_cast<std::uint64_t>(when) + 1);
    job.network.cut(0, 3);
    job.kill(3);
    job.world.at(after(job.world.now(), std::chrono::microseconds(when)), [&] {
      job.network.break_streams(0, 2);
      job.network.break_streams(0, 4);
    });
    job.pass(300ms);
    job.expect_lost(3, {0, 1, 2, 4});
    job.pass(10s);
    job.expect_lost(3, {0, 1, 2, 4});
  }
}

TEST(SimLocalPeers, WhoSharesRankZerosHostComesBackLikeAnyOther) {
  for (const Duration away : {Duration(0ms), Duration(60s)}) {
    TwoHosts job;
    if (away > 0ms) job.world.freeze(job.rank(1).node.loop.node());
    for (int again = 0; again < 3; ++again) {
      job.network.break_streams(0, 1);
      job.pass(away + 100ms);
    }
    EXPECT_GE(job.network.broken(), away > 0ms ? 1u : 3u);
    for (const auto& one : job.ranks) EXPECT_TRUE(one->lost.ranks.empty()) << one->lost.sentences[0];
    if (away > 0ms) job.world.thaw(job.rank(1).node.loop.node());
    job.pass(1s);
    job.kill(4);
    job.pass(100ms);
    job.expect_lost(4, {0, 1, 2, 3});
  }
}

TEST(SimLocalPeers, WhoDiesBeforeItIsBackIsLostAtOnce) {
  TwoHosts job;
  job.world.freeze(job.rank(1).node.loop.node());
  job.network.break_streams(0, 1);
  job.pass(60s);
  job.kill(1);
  job.pass(10ms);
  job.expect_lost(1, {0, 2, 3, 4});
}

// It computed, hears of the break of the connection and of the end of the process at once, and goes itself.
TEST(SimLocalPeers, RankZeroLeavesWithoutWaitingForWhoEndedBeforeIt) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RendezvousJob job(2, seed);
    job.rank(1).first = 0;
    for (const auto& one : job.ranks) one->start();
    job.expect_met();
    job.world.freeze(job.rank(0).node.loop.node());
    job.world.kill(job.rank(1).node.loop.node());
    job.world.run_until(after(job.world.now(), 1s));
    Stop stop;
    Task<void> leaving = job.rank(0).rendezvous->leave(job.leave_by(), stop);
    leaving.start();
    job.world.thaw(job.rank(0).node.loop.node());
    EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms)) << seed;
  }
}

TEST(SimLocalPeers, TheEndOfRankZeroIsToldOnce) {
  TwoHosts job;
  job.kill(0);
  job.pass(20s);
  job.expect_lost(0, {1, 2, 3, 4});
}

TEST(SimLocalPeers, WhoLeftInOrderIsNotLost) {
  TwoHosts job;
  for (const int one : {2, 4}) job.rank(one).lost.left.insert(3);
  job.rank(0).lost.left.insert(1);
  job.world.freeze(job.rank(0).node.loop.node());
  Stop stop;
  Task<void> three = job.rank(3).rendezvous->leave(job.leave_by(), stop);
  Task<void> one = job.rank(1).rendezvous->leave(job.leave_by(), stop);
  three.start();
  one.start();
  job.pass(2s);  // rank 0 does not answer
  EXPECT_TRUE(three.done() && one.done());
  job.kill(3);
  job.kill(1);
  job.pass(100ms);
  job.world.thaw(job.rank(0).node.loop.node());
  job.pass(20s);
  for (const auto& each : job.ranks) EXPECT_TRUE(each->lost.ranks.empty()) << each->lost.sentences[0];
}

TEST(SimLocalPeers, WhoIsNotSeenIsLostWithItsConnectionUnlessItHasLeft) {
  for (const bool left : {false, true}) {
    RendezvousJob job(2);
    job.rank(1).first = 0;
    for (const auto& one : job.ranks) one->processes.seen = false;
    for (const auto& one : job.ranks) one->start();
    job.expect_met();
    if (left) job.rank(0).lost.left.insert(1);
    job.world.kill(job.rank(1).node.loop.node());
    job.network.break_streams(0, 1);
    job.run_until([] { return false; }, 60s);
    EXPECT_EQ(job.rank(0).lost.ranks, left ? std::vector<int>{} : std::vector<int>{1});
  }
}

// Three ranks of one host, of which one leaves while the others compute, or wait for its process to end.
struct OneHost : RendezvousJob {
  explicit OneHost(std::uint64_t seed) : RendezvousJob(3, seed) {
    for (const auto& one : ranks) one->first = 0;
    for (const auto& one : ranks) one->start();
    expect_met();
  }
  sim::NodeId node(int one) { return rank(one).node.loop.node(); }
  void each_other(int than, const std::function<void(int)>& act) {
    for (int one = 0; one < 3; ++one) {
      if (one != than) act(one);
    }
  }
  // It leaves in no time, and its process ends.
  void leave_alone(int leaver) {
    each_other(leaver, [&](int one) { rank(one).lost.left.insert(leaver); });
    each_other(leaver, [&](int one) { world.freeze(node(one)); });
    Stop stop;
    Task<void> leaving = rank(leaver).rendezvous->leave(leave_by(), stop);
    leaving.start();
    EXPECT_TRUE(run_until([&] { return leaving.done(); }, 10ms)) << leaver;
    run_until([] { return false; }, 10ms);
    world.kill(node(leaver));
  }
};

TEST(SimLocalPeers, OfOneHostLeaveAloneAndTheOthersLoseOnlyWhoDies) {
  for (int leaver = 0; leaver < 3; ++leaver) {
    for (const bool breaks : {false, true}) {  // with what the leaver has said
      OneHost job(static_cast<std::uint64_t>(leaver) + 1);
      job.leave_alone(leaver);
      if (breaks) job.each_other(leaver, [&](int one) { job.network.break_streams(leaver, one); });
      job.each_other(leaver, [&](int one) { job.world.thaw(job.node(one)); });
      job.run_until([] { return false; }, 60s);
      job.each_other(leaver, [&](int one) { EXPECT_TRUE(job.rank(one).lost.ranks.empty()) << leaver << ' ' << one; });

      const int dies = leaver == 2 ? 1 : 2;
      const int stays = 3 - leaver - dies;
      job.world.kill(job.node(dies));
      job.run_until([] { return false; }, 1s);
      EXPECT_EQ(job.rank(stays).lost.ranks, std::vector<int>{dies});
      job.expect_to_leave({stays});
    }
  }
}

// Ranks whose processes are not seen, as those of other pid namespaces are not.
TEST(SimLocalPeers, ThatDoNotSeeEachOtherDoNotLeaveAlone) {
  wire::Roster roster;
  for (const char* process : {"pid:[1] 7 100", "pid:[1] 8 101", "pid:[1] 9 102"})
    roster.ranks.emplace_back().process = process;
  const std::vector<std::int32_t> one_host = {0, 0, 0};
  EXPECT_TRUE(can_leave_alone(roster, one_host));
  EXPECT_FALSE(can_leave_alone(roster, {0, 0, 2}));
  for (const char* process : {"pid:[2] 9 102", "pid:[1] 8 101", "", "9 102", "102"}) {
    roster.ranks[2].process = process;
    EXPECT_FALSE(can_leave_alone(roster, one_host)) << process;
  }
  for (wire::RosterEntry& rank : roster.ranks) rank.process.clear();
  EXPECT_FALSE(can_leave_alone(roster, one_host));
}

TEST(SimLocalPeers, MoreThanEachMayWatchDoNotLeaveAlone) {
  wire::Roster roster;
  while (roster.ranks.size() < 256) {
    const std::string number = std::to_string(roster.ranks.size() + 7);
    roster.ranks.emplace_back().process = "pid:[1] " + number + " 100";
  }
  EXPECT_TRUE(can_leave_alone(roster, std::vector<std::int32_t>(256, 0)));
  roster.ranks.emplace_back().process = "pid:[1] 1000 100";
  EXPECT_FALSE(can_leave_alone(roster, std::vector<std::int32_t>(257, 0)));
}

}  // namespace
}  // namespace aiacc

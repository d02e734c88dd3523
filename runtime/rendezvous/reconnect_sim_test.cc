// Connections to rank 0 that break once all have met: who comes back, who is lost, and how ranks leave meanwhile.
#include "runtime/rendezvous/rendezvous_sim_world_test.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using namespace rendezvous_sim;

TEST(SimReconnect, WhoLostItsConnectionComesBackAndHearsTheRest) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RendezvousJob job(4, seed);
    for (const auto& one : job.ranks) one->start();
    job.expect_met();
    for (int again = 0; again < 3; ++again) {
      job.network.break_streams(0, 2);
      if (again == 1) job.world.kill(job.ranks[1]->node.loop.node());
      job.run_until([] { return false; }, 100ms);
    }
    EXPECT_GE(job.network.broken(), 3u);
    for (const int rank : {0, 2, 3}) EXPECT_EQ(job.rank(rank).lost.ranks, std::vector<int>{1}) << seed;
  }
}

// What those who wait are told meanwhile is not of the list that whoever comes back has heard a part of.
TEST(SimReconnect, WhoHadToWaitForOthersHearsTheRestToo) {
  RendezvousJob job(4);
  for (const auto& one : job.ranks) one->start(one->rank == 3 ? 3500ms : 0ms);
  job.expect_met();
  job.network.break_streams(0, 2);
  job.world.kill(job.ranks[1]->node.loop.node());
  job.run_until([] { return false; }, 1s);
  for (const int rank : {0, 2, 3}) EXPECT_EQ(job.rank(rank).lost.ranks, std::vector<int>{1});
}

// The reconnect breaks too, at every byte and as often as it is tried, while a death is told and both ends leave.
TEST(SimReconnect, TheReconnectBreaksAtEveryByte) {
  std::uint64_t broken = 0;
  for (std::uint64_t bytes = 1; bytes < 800; bytes += 7) {
    RendezvousJob job(3, bytes);
    for (const auto& one : job.ranks) one->start();
    job.expect_met();
    job.network.break_streams(0, 2);
    job.world.kill(job.ranks[1]->node.loop.node());
    for (int again = 0; again < 4; ++again) {
      job.network.break_next(bytes);
      job.run_until([&] { return !job.network.break_pending(); }, 300ms);
    }
    const auto heard = [&](int rank) { return job.rank(rank).lost.ranks == std::vector<int>{1}; };
    ASSERT_TRUE(job.run_until([&] { return heard(0) && heard(2); }, 5s)) << bytes;
    broken += job.network.broken();
    job.expect_to_leave({0, 2});
    job.run_until([] { return false; }, 1s);
    EXPECT_TRUE(heard(0) && heard(2)) << bytes << ": once, and nothing else";
  }
  EXPECT_GT(broken, 300u);
}

// It may end when both ends have proved themselves, and nothing was said on it yet.
TEST(SimReconnect, TheReconnectBreaksBehindTheHandshake) {
  std::uint64_t broken = 0;
  for (std::uint64_t bytes = 1; bytes < 400; ++bytes) {
    RendezvousJob job(2, bytes);
    job.rank(1).first = 0;  // rank 0 sees its process: nobody calls but the client
    for (const auto& one : job.ranks) one->start();
    job.expect_met();
    job.network.break_streams(0, 1);
    job.network.break_next(bytes);
    job.world.run_until(after(job.world.now(), 100ms));
    broken += job.network.broken() - 1;
    for (const auto& one : job.ranks) ASSERT_TRUE(one->lost.ranks.empty()) << bytes << ": " << one->lost.sentences[0];
  }
  EXPECT_GT(broken, 200u);
}

// A process that computes or is stopped cannot come back; its system still takes connections.
TEST(SimReconnect, WhoCannotComeBackForLongIsNotLost) {
  for (const int frozen : {0, 2}) {
    RendezvousJob job(3);
    for (const auto& one : job.ranks) one->start();
    job.expect_met();
    job.world.freeze(job.rank(frozen).node.loop.node());
    job.network.break_streams(0, 2);
    job.world.run_until(after(job.world.now(), 60s));
    job.network.cut(0, 2);  // the next attempt fails; the five seconds begin here
    job.network.break_streams(0, 2);
    job.run_until([] { return false; }, 2s);
    job.network.heal(0, 2);
    job.run_until([] { return false; }, 60s);
    for (const auto& one : job.ranks) EXPECT_TRUE(one->lost.ranks.empty()) << frozen;
    job.world.thaw(job.rank(frozen).node.loop.node());
    job.run_until([] { return false; }, 1s);
    job.world.kill(job.ranks[1]->node.loop.node());
    job.run_until([] { return false; }, 1s);
    for (const int rank : {0, 2}) EXPECT_EQ(job.rank(rank).lost.ranks, std::vector<int>{1}) << frozen;
  }
}

TEST(SimReconnect, WhoDiesBeforeItIsBackIsLostAtOnce) {
  for (const int dead : {0, 2}) {
    RendezvousJob job(3);
    for (const auto& one : job.ranks) one->start();
    job.expect_met();
    job.world.freeze(job.rank(dead).node.loop.node());
    job.network.break_streams(0, 2);
    job.run_until([] { return false; }, 10s);
    job.world.kill(job.rank(dead).node.loop.node());
    job.run_until([] { return false; }, 600ms);
    for (const int rank : {0, 1, 2}) {
      if (rank == dead) continue;
      ASSERT_EQ(job.rank(rank).lost.ranks, std::vector<int>{dead});
      if (rank == 1 && dead == 0) continue;  // its own connection ended with the process
      EXPECT_NE(job.rank(rank).lost.sentences[0].find("was reset; nobody listens at tcp:192.0.2."), std::string::npos)
          << job.rank(rank).lost.sentences[0];
    }
  }
}

// Whether the host is down or only the path to it nobody can tell; its operations end with the path (runtime/watch/path_watch.h).
TEST(SimReconnect, WhoIsBehindABrokenPathIsNotLostAndComesBackWhenItIsMended) {
  for (const bool dies : {false, true}) {
    RendezvousJob job(4);
    for (const auto& one : job.ranks) one->start();
    job.expect_met();
    job.network.break_streams(0, 2);
    job.network.cut(0, 2);
    job.run_until([] { return false; }, 600s);
    job.world.kill(job.rank(dies ? 2 : 1).node.loop.node());
    job.run_until([] { return false; }, 600s);
    EXPECT_TRUE(job.rank(2).lost.ranks.empty());
    EXPECT_EQ(job.rank(0).lost.ranks, dies ? std::vector<int>{} : std::vector<int>{1});
    job.network.heal(0, 2);
    job.run_until([] { return false; }, 4s);
    for (const int rank : {0, dies ? 1 : 2, 3}) {
      EXPECT_EQ(job.rank(rank).lost.ranks, std::vector<int>{dies ? 2 : 1}) << rank;
    }
  }
}

// While the job comes together nothing else would end the wait.
TEST(SimReconnect, WhoIsBehindABrokenPathBeforeAllHaveMetEndsTheJobAfterFiveSeconds) {
  RendezvousJob job(3);
  for (const auto& one : job.ranks) one->start();
  ASSERT_TRUE(job.run_until([&] { return job.rank(2).roster.has_value(); }));
  ASSERT_FALSE(job.rank(0).done());
  job.network.break_streams(0, 2);
  job.network.cut(0, 2);
  const Instant cut = job.world.now();
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }));
  EXPECT_GE(job.world.now(), after(cut, 5s));
  EXPECT_LE(job.world.now(), after(cut, 10s));
  for (const auto& one : job.ranks) {
    ASSERT_TRUE(one->error);
    EXPECT_EQ(one->error->code(), Code::kPeerFailed);
  }
  EXPECT_NE(job.rank(2).error->message().find("while the job came together"), std::string::npos);
}

TEST(SimReconnect, WhoWasGivenUpIsToldSoWhenItComesBack) {
  RendezvousJob job(3);
  for (const auto& one : job.ranks) one->start();
  job.expect_met();
  job.world.freeze(job.rank(2).node.loop.node());
  job.rank(2).data.reset();
  job.network.break_streams(0, 2);
  job.run_until([] { return false; }, 1s);
  for (const int rank : {0, 1}) EXPECT_EQ(job.rank(rank).lost.ranks, std::vector<int>{2});
  job.world.thaw(job.rank(2).node.loop.node());
  job.run_until([] { return false; }, 1s);
  ASSERT_EQ(job.rank(2).lost.ranks, std::vector<int>{0});
  EXPECT_NE(job.rank(2).lost.sentences[0].find("rank 0 has given this rank up for lost"), std::string::npos)
      << job.rank(2).lost.sentences[0];
}

// One leaves, or both; the connection breaks under their last words, and the process that has left is gone at once.
TEST(SimReconnect, ConnectionsBreakWhileRanksLeave) {
  for (const std::vector<int>& leaving : {std::vector<int>{2}, std::vector<int>{0}, std::vector<int>{0, 2}}) {
    for (int when = 0; when < 200; when += 5) {
      RendezvousJob job(3, static_cast<std::uint64_t>(when) + 1);
      for (const auto& one : job.ranks) one->start();
      job.expect_met();
      sim::SimLoop& clock = job.rank(1).node.loop;
      Task<void> breaking = [](sim::SimLoop* loop, sim::SimNetwork* network, int us) -> Task<void> {
        Stop stop;
        co_await sleep_for(*loop, std::chrono::microseconds(us), stop);
        network->break_streams(0, 2);
      }(&clock, &job.network, when);
      breaking.start();
      job.expect_to_leave(leaving);
      for (const int rank : leaving) job.world.kill(job.rank(rank).node.loop.node());
      job.run_until([] { return false; }, 1s);
      for (const auto& one : job.ranks) EXPECT_TRUE(one->lost.ranks.empty()) << when << ": " << one->lost.sentences[0];
    }
  }
}

}  // namespace
}  // namespace aiacc

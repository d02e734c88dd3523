// A client that says what none says, and what rank 0 makes of it.
#include "runtime/rendezvous/played_rendezvous_test.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using namespace rendezvous_sim;

constexpr const char* kCut = "closed the connection without a farewell";  // what an unauthenticated peer gets

bool says(const std::string& sentence, const std::string& part) {
  if (sentence.find(part) != std::string::npos) return true;
  ADD_FAILURE() << "'" << part << "' is not in: " << sentence;
  return false;
}

// Ranks 0 and 1 are real, each on a host of its own; the client is rank 2.
struct WithClient : RendezvousJob {
  // `first`: the lowest rank of the client's host.
  explicit WithClient(bool meet = true, int first = 2, std::uint64_t seed = 1) : RendezvousJob(3, seed) {
    rank(2).first = first;
    rank(0).start();
    rank(1).start();
    if (meet) client.meet();
    run_until([this] { return all_done(); }, 100ms);
  }
  void pass(Duration time) { world.run_until(after(world.now(), time)); }
  void expect_none_lost() {
    for (const int one : {0, 1}) EXPECT_TRUE(rank(one).lost.ranks.empty()) << rank(one).lost.sentences[0];
  }
  // By both.
  void expect_lost(const std::string& why) {
    for (const int one : {0, 1}) {
      ASSERT_EQ(rank(one).lost.ranks, std::vector<int>{2}) << one;
      says(rank(one).lost.sentences[0], why);
    }
  }

  PlayedClient client{*this, 2};
};

TEST(SimPlayedClient, OfAnOldVersionIsToldOfOnce) {
  RendezvousJob job(3);
  PlayedClient client(job, 2);
  client.versions.newest = 1;
  job.rank(0).start();
  job.rank(1).start();
  client.call();
  client.disconnect();
  client.meet();
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 100ms));
  const std::vector<std::string> remarks = job.rank(0).rendezvous->remarks();
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_EQ(remarks[0].rfind("rank 2 (", 0), 0u) << remarks[0];
  says(remarks[0], ") speaks version 1 of the protocol between ranks: run the same aiacc on all hosts");
}

TEST(SimPlayedClient, TellsOfTheEndOfWhoIsNotOnItsHost) {
  for (const std::int32_t ended : {-1, 0, 1, 2, 3}) {
    WithClient job;
    job.client.send(wire::RankLost{ended, "it is dead"});
    job.pass(1s);
    job.expect_lost(fmt::format("it tells of the end of rank {}, which is not on its host", ended));
  }
}

TEST(SimPlayedClient, TellsRankZeroOfItsOwnEnd) {
  WithClient job(true, 0);
  job.client.send(wire::RankLost{0, "it is dead"});
  says(job.client.end(), kCut);
  job.pass(10s);
  job.expect_none_lost();
}

// Its process has ended, and a child of it holds its connection.
TEST(SimPlayedClient, IsHungUpWhereItsLocalPeerSawItEnd) {
  RendezvousJob job(3);
  Node process(job.world, job.network, 9);
  job.rank(2).first = 1;
  wire::Arrive said = job.rank(2).introduction();
  said.process = "sim " + std::to_string(process.loop.node()) + " 0";
  job.rank(0).start();
  job.rank(1).start();
  PlayedClient client(job, 2);
  client.meet(said);
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 100ms));
  job.world.kill(process.loop.node());
  says(client.end(), kCut);
  for (const int one : {0, 1}) EXPECT_EQ(job.rank(one).lost.ranks, std::vector<int>{2}) << one;
}

TEST(SimPlayedClient, TellsOfAnEndBeforeItIsKnownWhoIsOnItsHost) {
  WithClient job(false);
  job.world.freeze(job.rank(1).node.loop.node());
  job.client.call();
  job.client.send(job.rank(2).introduction());
  job.client.receive<wire::Roster>();
  job.client.send(wire::RankLost{1, "it is dead"});
  job.pass(1s);
  job.world.thaw(job.rank(1).node.loop.node());
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 6s));
  for (const int one : {0, 1}) {
    ASSERT_TRUE(job.rank(one).error);
    says(job.rank(one).error->message(), "it tells of the end of rank 1, which is not on its host");
  }
}

TEST(SimPlayedClient, TellsOfAHostThatCannotBe) {
  for (const std::int32_t first : {-1, 3}) {
    WithClient job(false);
    job.client.call();
    job.client.send(job.rank(2).introduction());
    job.client.receive<wire::Roster>();
    job.client.send(wire::LocalPeers{first});
    ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 1s));
    for (const int one : {0, 1}) {
      ASSERT_TRUE(job.rank(one).error) << one;
      EXPECT_EQ(job.rank(one).error->message(),
                fmt::format("rank 2 says that rank {} is the first of its host, and that is not what rank {} says",
                            first, first));
    }
  }
}

TEST(SimPlayedClient, TellsOfItsHostBeforeItKnowsTheOthers) {
  RendezvousJob job(3);
  PlayedClient client(job, 2);
  job.rank(0).start();
  client.call();
  client.send(job.rank(2).introduction());
  client.send(wire::LocalPeers{0});
  says(client.end(), kCut);
  job.rank(1).start();
  job.rank(2).start();
  job.expect_met();
}

TEST(SimPlayedClient, ComesAsAnotherRankThanItProved) {
  RendezvousJob job(3);
  PlayedClient client(job, 2);
  job.rank(0).start();
  client.call();
  wire::Arrive other = job.rank(1).introduction();
  client.send(other);
  says(client.end(), kCut);
  job.rank(1).start();
  job.rank(2).start();
  job.expect_met();
}

// Its broken connection may stand for long where it cannot be told: the next one takes its place all the same.
TEST(SimPlayedClient, IsBackWhileItsOldConnectionStands) {
  WithClient job;
  const auto before = job.client.call_again();
  job.client.send(wire::Resume{3});
  says(job.client.end_of(*before), kCut);
  job.pass(10s);
  for (const int one : {0, 1}) EXPECT_TRUE(job.rank(one).lost.ranks.empty()) << job.rank(one).lost.sentences[0];
  job.world.kill(job.rank(1).node.loop.node());
  EXPECT_EQ(job.client.receive<wire::RankLost>().rank, 1);
  Stop stop;
  Task<void> leaving = job.rank(0).rendezvous->leave(job.leave_by(), stop);
  leaving.start();
  job.client.receive<wire::Gone>();
  job.client.farewell();
  EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms)) << "the old connection is not waited for";
}

TEST(SimPlayedClient, HasHeardMoreThanWasSaid) {
  WithClient job;
  const auto before = job.client.call_again();
  job.client.send(wire::Resume{4});
  says(job.client.end(), kCut);
  job.pass(10s);
  EXPECT_TRUE(job.rank(0).lost.ranks.empty()) << "the connection before stands";
}

TEST(SimPlayedClient, HearsAFarewellWhenItLeaves) {
  WithClient job;
  job.client.send(wire::Leave{});
  job.client.farewell();
  EXPECT_EQ(job.client.end(), "in order");
  job.client.disconnect();
  job.pass(10s);
  for (const int one : {0, 1}) EXPECT_TRUE(job.rank(one).lost.ranks.empty()) << job.rank(one).lost.sentences[0];
}

TEST(SimPlayedClient, SaysFarewellAndNotThatItLeaves) {
  WithClient job;
  job.client.farewell();
  job.pass(1s);
  job.expect_lost("rank 2 (host2, ");
}

// Its farewell is an answer then, and what follows is no break.
TEST(SimPlayedClient, SaysFarewellWhenRankZeroLeaves) {
  WithClient job;
  job.rank(2).listen();
  Stop stop;
  Task<void> one = job.rank(0).rendezvous->leave(job.leave_by(), stop);
  one.start();
  job.client.receive<wire::Gone>();
  job.client.farewell();
  job.client.disconnect();
  EXPECT_TRUE(job.run_until([&] { return one.done(); }, 100ms));
}

TEST(SimPlayedClient, ComesWhenThereWillBeNoJob) {
  RendezvousJob job(3);
  PlayedClient client(job, 2);
  job.rank(0).start(0ns, 1s);
  ASSERT_TRUE(job.run_until([&] { return job.rank(0).done(); }, 3s));
  client.call();
  client.send(job.rank(2).introduction());
  says(client.receive<wire::JoinRefused>().sentence, "the job did not come together within 1 s");
}

TEST(SimPlayedClient, BeginsAnewWhileTheJobComesTogether) {
  WithClient job(false);
  job.client.call();
  job.client.send(job.rank(2).introduction());
  job.client.receive<wire::Roster>();
  job.client.disconnect();
  job.pass(10ms);
  job.client.call();
  wire::Arrive other = job.rank(2).introduction();
  other.ports.ports = {wire::tcp_address(77)};
  job.client.send(other);
  says(job.client.receive<wire::JoinRefused>().sentence, "began anew while the job came together");
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 1s));
  for (const int one : {0, 1}) {
    ASSERT_TRUE(job.rank(one).error) << one;
    says(job.rank(one).error->message(), "began anew while the job came together");
  }
}

TEST(SimPlayedClient, TellsOfTheHostOfARankWhosePlaceIsTaken) {
  WithClient job(false);
  job.client.call();
  job.client.send(job.rank(2).introduction());
  job.client.receive<wire::Roster>();
  PlayedClient other(job, 2);
  other.call();
  wire::Arrive stray = job.rank(2).introduction();
  stray.job = "another";
  other.send(stray);
  other.receive<wire::JoinRefused>();
  other.send(wire::LocalPeers{0});
  says(other.end(), kCut);
  job.client.send(wire::LocalPeers{2});
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 1s));
  EXPECT_EQ(job.rank(0).firsts, (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(SimPlayedClient, HearsNothingBeforeItHasSaidWhoItIs) {
  WithClient job(false);
  job.client.call();
  job.pass(2500ms);  // the others are told whom they wait for
  job.client.send(job.rank(2).introduction());
  job.client.receive<wire::Roster>();
}

// Its process ends, which rank 0 sees: it has said that it leaves, to rank 0 or in the memory of their host.
TEST(SimPlayedClient, EndsWhenItHasLeft) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool told : {false, true}) {
      WithClient job(true, 0, seed);
      if (told) {
        job.client.send(wire::Leave{});
        job.client.farewell();
        EXPECT_EQ(job.client.end(), "in order");
      } else {
        job.rank(0).lost.left.insert(2);
      }
      job.world.kill(job.rank(2).node.loop.node());
      job.pass(1s);
      job.expect_none_lost();
      Stop stop;
      Task<void> leaving = job.rank(0).rendezvous->leave(job.leave_by(), stop);
      leaving.start();
      EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms)) << "it is waited for, " << seed;
    }
  }
}

TEST(SimPlayedClient, DiesWhileRankZeroLeaves) {
  WithClient job;
  Stop stop;
  Task<void> leaving = job.rank(0).rendezvous->leave(job.leave_by(), stop);
  leaving.start();
  job.client.receive<wire::Gone>();
  job.client.disconnect();
  EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms));
  job.expect_none_lost();
}

TEST(SimPlayedClient, IsWaitedForUntilTheGivenEndAndNoLonger) {
  WithClient job;
  Stop stop;
  const Instant end = after(job.world.now(), 250ms);
  Task<void> leaving = job.rank(0).rendezvous->leave(end, stop);
  leaving.start();
  job.client.receive<wire::Gone>();  // and answers nothing
  EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 1s));
  EXPECT_EQ(job.world.now(), end);
}

// On rank 0's host: it may come back as long as its process is seen there.
TEST(SimPlayedClient, LosesItsConnectionWhileRankZeroLeavesAndEnds) {
  WithClient job(true, 0);
  Stop stop;
  Task<void> leaving = job.rank(0).rendezvous->leave(job.leave_by(), stop);
  leaving.start();
  job.client.receive<wire::Gone>();
  job.client.disconnect();
  job.pass(100ms);
  EXPECT_FALSE(leaving.done());
  job.world.kill(job.rank(2).node.loop.node());
  EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms));
}

TEST(SimPlayedClient, IsBackAndWaitedForNoMore) {
  WithClient job(true, 0);
  job.client.disconnect();
  job.pass(10ms);
  job.client.call_again();
  job.client.send(wire::Resume{3});
  Stop stop;
  Task<void> leaving = job.rank(0).rendezvous->leave(job.leave_by(), stop);
  leaving.start();
  job.client.receive<wire::Gone>();
  job.client.farewell();
  EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms));
  job.expect_none_lost();
}

// Its port may be anybody's on that host.
TEST(SimPlayedClient, LosesItsConnectionWhereItsProcessIsNotSeen) {
  RendezvousJob job(3);
  job.rank(2).first = 0;
  job.rank(2).listen();
  wire::Arrive said = job.rank(2).introduction();
  said.process.clear();
  job.rank(0).start();
  job.rank(1).start();
  PlayedClient client(job, 2);
  client.meet(said);
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 100ms));
  client.disconnect();
  job.world.run_until(after(job.world.now(), 1s));
  for (const int one : {0, 1}) EXPECT_EQ(job.rank(one).lost.ranks, std::vector<int>{2}) << one;
}

}  // namespace
}  // namespace aiacc

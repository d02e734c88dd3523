// A rank 0 that says what none says, and what its clients make of it.
#include "runtime/rendezvous/played_rendezvous_test.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using namespace rendezvous_sim;

TEST(SimPlayedServer, TellsOfLosses) {
  for (const std::int32_t lost : {0, 2}) {
    RendezvousJob job(3);
    PlayedServer zero(job);
    zero.meet(job.rank(1));
    zero.send(wire::RankLost{lost, "it is dead"});
    ASSERT_TRUE(job.run_until([&] { return !job.rank(1).lost.ranks.empty(); }, 1s)) << lost;
    EXPECT_EQ(job.rank(1).lost.ranks, std::vector<int>{lost});
    EXPECT_EQ(job.rank(1).lost.sentences[0], "it is dead");
  }
}

TEST(SimPlayedServer, OfAnOldVersionIsToldOf) {
  for (const std::uint16_t newest : {1, 2}) {
    RendezvousJob job(2);
    PlayedServer zero(job);
    zero.versions.newest = newest;
    zero.meet(job.rank(1));
    const std::vector<std::string> remarks = job.rank(1).rendezvous->remarks();
    ASSERT_EQ(remarks.size(), newest == 1 ? 1u : 0u);
    if (newest == 2) continue;
    EXPECT_EQ(remarks[0],
              "rank 0 on host host0 speaks version 1 of the protocol between ranks: run the same aiacc on all hosts");
  }
}

TEST(SimPlayedServer, ThatTellsOfALossThatCannotBeIsLostItself) {
  for (const std::int32_t lost : {-1, 1, 3}) {
    RendezvousJob job(3);
    PlayedServer zero(job);
    zero.meet(job.rank(1));
    zero.send(wire::RankLost{lost, "it is dead"});
    ASSERT_TRUE(job.run_until([&] { return !job.rank(1).lost.ranks.empty(); }, 1s)) << lost;
    EXPECT_EQ(job.rank(1).lost.ranks, std::vector<int>{0});
    EXPECT_EQ(job.rank(1).lost.sentences[0],
              fmt::format("rank 0 (host0) went away: it tells of the loss of rank {}, of 3 ranks", lost));
  }
}

TEST(SimPlayedServer, ThatListsAnotherNumberOfRanksIsCalledAgain) {
  for (const int ranks : {2, 4}) {
    RendezvousJob job(3);
    PlayedServer zero(job);
    wire::Roster other = zero.roster;
    other.ranks.resize(static_cast<std::size_t>(ranks));
    job.rank(1).start();
    zero.accept_arrive();
    zero.send(other);
    zero.send(wire::ReconnectPort{1});
    EXPECT_EQ(zero.accept_arrive().rank, 1);
    EXPECT_FALSE(job.rank(1).roster) << ranks;
  }
}

TEST(SimPlayedServer, ThatTellsWhereRanksCannotBeEndsTheRendezvous) {
  const struct {
    std::vector<std::int32_t> firsts;
    const char* says;
  } told[] = {
      {{0, 1}, "rank 0 tells where 2 ranks are, in a job of 3"},
      {{0, 1, 2, 3}, "rank 0 tells where 4 ranks are, in a job of 3"},
      {{0, 2, 2}, "rank 1 says that rank 2 is the first of its host, and that is not what rank 2 says"},
      {{0, -1, 2}, "rank 1 says that rank -1 is the first of its host, and that is not what rank -1 says"},
      {{0, 3, 2}, "rank 1 says that rank 3 is the first of its host, and that is not what rank 3 says"},
      {{0, 0, 1}, "rank 2 says that rank 1 is the first of its host, and that is not what rank 1 says"},
  };
  for (const auto& one : told) {
    RendezvousJob job(3);
    PlayedServer zero(job);
    job.rank(1).start();
    zero.accept_arrive();
    zero.send(zero.roster);
    zero.send(wire::ReconnectPort{1});
    zero.receive<wire::LocalPeers>();
    zero.send(wire::HostMap{one.firsts});
    ASSERT_TRUE(job.run_until([&] { return job.rank(1).done(); }, 1s)) << one.says;
    ASSERT_TRUE(job.rank(1).error) << one.says;
    EXPECT_EQ(job.rank(1).error->code(), Code::kProtocol);
    EXPECT_EQ(job.rank(1).error->message(), one.says);
  }
}

TEST(SimPlayedServer, HearsAFarewellWhenItIsGone) {
  RendezvousJob job(2);
  PlayedServer zero(job);
  zero.meet(job.rank(1));
  zero.send(wire::Gone{});
  EXPECT_EQ(zero.end(), "in order");
  zero.disconnect();
  job.run_until([] { return false; }, 10s);
  EXPECT_TRUE(job.rank(1).lost.ranks.empty());
}

// It had begun to leave, and its last words may be lost; rank 0 leaves meanwhile.
TEST(SimPlayedServer, HearsTheLastWordsAgainOnTheNextConnection) {
  RendezvousJob job(2);
  PlayedServer zero(job);
  zero.meet(job.rank(1));
  Stop stop;
  Task<void> leaving = job.rank(1).rendezvous->leave(job.leave_by(), stop);
  leaving.start();
  zero.receive<wire::Leave>();
  zero.disconnect();
  EXPECT_EQ(zero.accept_resume().received, 3u);
  zero.receive<wire::Leave>();
  EXPECT_EQ(zero.end(), "in order");
  EXPECT_FALSE(leaving.done());
  zero.send(wire::Gone{});
  EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms));
  EXPECT_TRUE(job.rank(1).lost.ranks.empty());
}

TEST(SimPlayedServer, AnswersAFarewell) {
  RendezvousJob job(2);
  PlayedServer zero(job);
  zero.meet(job.rank(1));
  Stop stop;
  Task<void> leaving = job.rank(1).rendezvous->leave(job.leave_by(), stop);
  leaving.start();
  zero.receive<wire::Leave>();
  EXPECT_EQ(zero.end(), "in order");
  zero.farewell();
  EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms));
}

// A rank of the client's host ends behind that, and is no loss any more.
TEST(SimPlayedServer, HasSaidAllThatIsOfInterest) {
  for (const bool client_leaves : {false, true}) {
    RendezvousJob job(3);
    job.rank(2).first = 1;
    PlayedServer zero(job);
    zero.meet(job.rank(1));
    Stop stop;
    Task<void> leaving = job.rank(1).rendezvous->leave(job.leave_by(), stop);
    if (client_leaves) {
      leaving.start();
      zero.receive<wire::Leave>();
    } else {
      zero.send(wire::Gone{});
    }
    EXPECT_EQ(zero.end(), "in order");
    job.world.kill(job.rank(2).node.loop.node());
    job.world.run_until(after(job.world.now(), 10s));
    EXPECT_TRUE(job.rank(1).lost.ranks.empty()) << job.rank(1).lost.sentences[0];
  }
}

// Its process has ended, and a child of it holds its connection.
TEST(SimPlayedServer, IsSeenToEndByItsLocalPeer) {
  RendezvousJob job(2);
  Node process(job.world, job.network, 9);
  job.rank(1).first = 0;
  PlayedServer zero(job);
  zero.roster.ranks[0].process = "sim " + std::to_string(process.loop.node()) + " 0";
  zero.meet(job.rank(1));
  job.world.kill(process.loop.node());
  job.world.run_until(after(job.world.now(), 1s));
  EXPECT_EQ(job.rank(1).lost.ranks, std::vector<int>{0});
  Stop stop;
  Task<void> leaving = job.rank(1).rendezvous->leave(job.leave_by(), stop);
  leaving.start();
  EXPECT_TRUE(leaving.done()) << "there is nobody to tell";
}

// What was heard on the connections that broke before is said again, and is not counted twice.
TEST(SimPlayedServer, SaysTheRosterAgain) {
  RendezvousJob job(2);
  PlayedServer zero(job);
  job.rank(1).start();
  zero.accept_arrive();
  zero.send(zero.roster);
  job.world.run_until(after(job.world.now(), 1ms));
  zero.disconnect();
  zero.accept_arrive();
  zero.send(zero.roster);
  zero.send(zero.where_back());
  zero.receive<wire::LocalPeers>();
  zero.send(wire::HostMap{{0, 1}});
  ASSERT_TRUE(job.run_until([&] { return job.rank(1).done(); }, 1s));
  zero.disconnect();
  EXPECT_EQ(zero.accept_resume().received, 3u);
}

TEST(SimPlayedServer, IsSaidNotToBeReachedWhenItIsGone) {
  for (const bool said_who_waits : {false, true}) {
    RendezvousJob job(2);
    std::optional<PlayedServer> zero(job);
    job.rank(1).start(0ns, 2s);
    zero->accept_arrive();
    if (said_who_waits) zero->send(wire::Waiting{"rank 0 waits"});
    job.world.run_until(after(job.world.now(), 1ms));
    zero.reset();
    ASSERT_TRUE(job.run_until([&] { return job.rank(1).done(); }, 3s));
    const std::string& sentence = job.rank(1).error->message();
    EXPECT_NE(sentence.find("rank 1 did not reach rank 0 at tcp:192.0.2.1:4242"), std::string::npos) << sentence;
  }
}

// Those connections that rank 0 takes for unauthenticated peers', and only those.
TEST(SimPlayedServer, HearsHowManyCallsBroke) {
  RendezvousJob job(2);
  PlayedServer zero(job);
  job.rank(1).start();
  zero.refuse('x');
  EXPECT_EQ(zero.accept_arrive().dropped, 0u);
  zero.disconnect();
  zero.drop();
  zero.drop();
  EXPECT_EQ(zero.accept_arrive().dropped, 2u);
}

TEST(SimPlayedServer, IsCalledLessOftenWhileItSaysNothing) {
  RendezvousJob job(2);
  PlayedServer zero(job);
  job.rank(1).start(0ns, 60s);
  ASSERT_TRUE(job.run_until([&] { return job.rank(1).done(); }, 61s));
  const std::string& sentence = job.rank(1).error->message();
  EXPECT_NE(sentence.find("(5 attempts)"), std::string::npos) << "3, 6, 12, 24 s and the rest: " << sentence;
}

// The address at which it was found comes first, whatever it names itself. It is found again at one of its own.
TEST(SimPlayedServer, IsFoundAgainAtAnAddressOfItsOwn) {
  const struct {
    std::vector<std::string> named, kept;
    std::string back;
  } cases[] = {{{}, {"192.0.2.1"}, "192.0.2.1"},
               {{"10.9.8.7", "192.0.2.1"}, {"192.0.2.1", "10.9.8.7"}, "192.0.2.1"},
               {{"10.9.8.7"}, {"192.0.2.1", "10.9.8.7"}, "10.9.8.7"}};
  for (const auto& one : cases) {
    RendezvousJob job(2);
    PlayedServer zero(job, one.back);
    zero.roster.ranks[0].addresses = one.named;
    zero.meet(job.rank(1));
    EXPECT_EQ(job.rank(1).roster->ranks[0].addresses, one.kept);
    zero.disconnect();
    EXPECT_EQ(zero.accept_resume().received, 3u) << one.back;
  }
}

}  // namespace
}  // namespace aiacc

// A guest that says what none says, and what rank 0 makes of it.
#include "runtime/played_meeting_test.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using namespace meeting_sim;

constexpr const char* kCut = "closed the connection without a farewell";  // what whoever is not believed hears

bool says(const std::string& sentence, const std::string& part) {
  if (sentence.find(part) != std::string::npos) return true;
  ADD_FAILURE() << "'" << part << "' is not in: " << sentence;
  return false;
}

// Ranks 0 and 1 are real, each on a host of its own; the guest is rank 2.
struct WithGuest : MeetingJob {
  // `first`: the lowest rank of the guest's host.
  explicit WithGuest(bool meet = true, int first = 2, std::uint64_t seed = 1) : MeetingJob(3, seed) {
    rank(2).first = first;
    rank(0).start();
    rank(1).start();
    if (meet) guest.meet();
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

  PlayedGuest guest{*this, 2};
};

TEST(SimPlayedGuest, TellsOfTheEndOfWhoIsNotOnItsHost) {
  for (const std::int32_t ended : {-1, 0, 1, 2, 3}) {
    WithGuest job;
    job.guest.say(wire::RankLost{ended, "it is dead"});
    job.pass(1s);
    job.expect_lost(fmt::format("it tells of the end of rank {}, which is not on its host", ended));
  }
}

TEST(SimPlayedGuest, TellsRankZeroOfItsOwnEnd) {
  WithGuest job(true, 0);
  job.guest.say(wire::RankLost{0, "it is dead"});
  says(job.guest.end(), kCut);
  job.pass(10s);
  job.expect_none_lost();
}

// Its process has ended, and a child of it holds its connection.
TEST(SimPlayedGuest, IsHungUpWhereItsNeighbourSawItEnd) {
  MeetingJob job(3);
  Node process(job.world, job.network, 9);
  job.rank(2).first = 1;
  wire::Arrive said = job.rank(2).introduction();
  said.process = std::to_string(process.loop.node());
  job.rank(0).start();
  job.rank(1).start();
  PlayedGuest guest(job, 2);
  guest.meet(said);
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 100ms));
  job.world.kill(process.loop.node());
  says(guest.end(), kCut);
  for (const int one : {0, 1}) EXPECT_EQ(job.rank(one).lost.ranks, std::vector<int>{2}) << one;
}

TEST(SimPlayedGuest, TellsOfAnEndBeforeItIsKnownWhoIsOnItsHost) {
  WithGuest job(false);
  job.world.freeze(job.rank(1).node.loop.node());
  job.guest.call();
  job.guest.say(job.rank(2).introduction());
  job.guest.hear<wire::Roster>();
  job.guest.say(wire::RankLost{1, "it is dead"});
  job.pass(1s);
  job.world.thaw(job.rank(1).node.loop.node());
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 6s));
  for (const int one : {0, 1}) {
    ASSERT_TRUE(job.rank(one).error);
    says(job.rank(one).error->message(), "it tells of the end of rank 1, which is not on its host");
  }
}

TEST(SimPlayedGuest, TellsOfAHostThatCannotBe) {
  for (const std::int32_t first : {-1, 3}) {
    WithGuest job(false);
    job.guest.call();
    job.guest.say(job.rank(2).introduction());
    job.guest.hear<wire::Roster>();
    job.guest.say(wire::Neighbours{first});
    ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 1s));
    for (const int one : {0, 1}) {
      ASSERT_TRUE(job.rank(one).error) << one;
      EXPECT_EQ(job.rank(one).error->message(),
                fmt::format("rank 2 says that rank {} is the first of its host, and that is not what rank {} says",
                            first, first));
    }
  }
}

TEST(SimPlayedGuest, TellsOfItsHostBeforeItKnowsTheOthers) {
  MeetingJob job(3);
  PlayedGuest guest(job, 2);
  job.rank(0).start();
  guest.call();
  guest.say(job.rank(2).introduction());
  guest.say(wire::Neighbours{0});
  says(guest.end(), kCut);
  job.rank(1).start();
  job.rank(2).start();
  job.expect_met();
}

TEST(SimPlayedGuest, ComesAsAnotherRankThanItProved) {
  MeetingJob job(3);
  PlayedGuest guest(job, 2);
  job.rank(0).start();
  guest.call();
  wire::Arrive other = job.rank(1).introduction();
  guest.say(other);
  says(guest.end(), kCut);
  job.rank(1).start();
  job.rank(2).start();
  job.expect_met();
}

// Its broken connection may stand for long where it cannot be told: the next one takes its place all the same.
TEST(SimPlayedGuest, IsBackWhileItsOldConnectionStands) {
  WithGuest job;
  const auto before = job.guest.call_again();
  job.guest.say(wire::Return{3});
  says(job.guest.end_of(*before), kCut);
  job.pass(10s);
  for (const int one : {0, 1}) EXPECT_TRUE(job.rank(one).lost.ranks.empty()) << job.rank(one).lost.sentences[0];
  job.world.kill(job.rank(1).node.loop.node());
  EXPECT_EQ(job.guest.hear<wire::RankLost>().rank, 1);
  Stop stop;
  Task<void> leaving = job.rank(0).meeting->leave(stop);
  leaving.start();
  job.guest.hear<wire::Gone>();
  job.guest.farewell();
  EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms)) << "the old connection is not waited for";
}

TEST(SimPlayedGuest, HasHeardMoreThanWasSaid) {
  WithGuest job;
  const auto before = job.guest.call_again();
  job.guest.say(wire::Return{4});
  says(job.guest.end(), kCut);
  job.pass(10s);
  EXPECT_TRUE(job.rank(0).lost.ranks.empty()) << "the connection before stands";
}

TEST(SimPlayedGuest, HearsAFarewellWhenItLeaves) {
  WithGuest job;
  job.guest.say(wire::Leave{});
  job.guest.farewell();
  EXPECT_EQ(job.guest.end(), "in order");
  job.guest.hang_up();
  job.pass(10s);
  for (const int one : {0, 1}) EXPECT_TRUE(job.rank(one).lost.ranks.empty()) << job.rank(one).lost.sentences[0];
}

TEST(SimPlayedGuest, SaysFarewellAndNotThatItLeaves) {
  WithGuest job;
  job.guest.farewell();
  job.pass(1s);
  job.expect_lost("rank 2 (host2, ");
}

// Its farewell is an answer then, and what follows is no break.
TEST(SimPlayedGuest, SaysFarewellWhenRankZeroLeaves) {
  WithGuest job;
  job.rank(2).listen();
  Stop stop;
  Task<void> one = job.rank(0).meeting->leave(stop);
  one.start();
  job.guest.hear<wire::Gone>();
  job.guest.farewell();
  job.guest.hang_up();
  EXPECT_TRUE(job.run_until([&] { return one.done(); }, 100ms));
}

TEST(SimPlayedGuest, ComesWhenThereWillBeNoJob) {
  MeetingJob job(3);
  PlayedGuest guest(job, 2);
  job.rank(0).start(0ns, 1s);
  ASSERT_TRUE(job.run_until([&] { return job.rank(0).done(); }, 3s));
  guest.call();
  guest.say(job.rank(2).introduction());
  says(guest.hear<wire::TurnedAway>().sentence, "the job did not come together within 1 s");
}

TEST(SimPlayedGuest, BeginsAnewWhileTheJobComesTogether) {
  WithGuest job(false);
  job.guest.call();
  job.guest.say(job.rank(2).introduction());
  job.guest.hear<wire::Roster>();
  job.guest.hang_up();
  job.pass(10ms);
  job.guest.call();
  wire::Arrive other = job.rank(2).introduction();
  other.data_port = 77;
  job.guest.say(other);
  says(job.guest.hear<wire::TurnedAway>().sentence, "began anew while the job came together");
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 1s));
  for (const int one : {0, 1}) {
    ASSERT_TRUE(job.rank(one).error) << one;
    says(job.rank(one).error->message(), "began anew while the job came together");
  }
}

TEST(SimPlayedGuest, TellsOfTheHostOfARankWhosePlaceIsTaken) {
  WithGuest job(false);
  job.guest.call();
  job.guest.say(job.rank(2).introduction());
  job.guest.hear<wire::Roster>();
  PlayedGuest other(job, 2);
  other.call();
  wire::Arrive stray = job.rank(2).introduction();
  stray.job = "another";
  other.say(stray);
  other.hear<wire::TurnedAway>();
  other.say(wire::Neighbours{0});
  says(other.end(), kCut);
  job.guest.say(wire::Neighbours{2});
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 1s));
  EXPECT_EQ(job.rank(0).firsts, (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(SimPlayedGuest, HearsNothingBeforeItHasSaidWhoItIs) {
  WithGuest job(false);
  job.guest.call();
  job.pass(2500ms);  // the others are told whom they wait for
  job.guest.say(job.rank(2).introduction());
  job.guest.hear<wire::Roster>();
}

// Its process ends, which rank 0 sees: it has said that it leaves, to rank 0 or in the memory of their host.
TEST(SimPlayedGuest, EndsWhenItHasLeft) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool told : {false, true}) {
      WithGuest job(true, 0, seed);
      if (told) {
        job.guest.say(wire::Leave{});
        job.guest.farewell();
        EXPECT_EQ(job.guest.end(), "in order");
      } else {
        job.rank(0).lost.left.insert(2);
      }
      job.world.kill(job.rank(2).node.loop.node());
      job.pass(1s);
      job.expect_none_lost();
      Stop stop;
      Task<void> leaving = job.rank(0).meeting->leave(stop);
      leaving.start();
      EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms)) << "it is waited for, " << seed;
    }
  }
}

TEST(SimPlayedGuest, DiesWhileRankZeroLeaves) {
  WithGuest job;
  Stop stop;
  Task<void> leaving = job.rank(0).meeting->leave(stop);
  leaving.start();
  job.guest.hear<wire::Gone>();
  job.guest.hang_up();
  EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms));
  job.expect_none_lost();
}

// On rank 0's host: it may come back as long as its process is seen there.
TEST(SimPlayedGuest, LosesItsConnectionWhileRankZeroLeavesAndEnds) {
  WithGuest job(true, 0);
  Stop stop;
  Task<void> leaving = job.rank(0).meeting->leave(stop);
  leaving.start();
  job.guest.hear<wire::Gone>();
  job.guest.hang_up();
  job.pass(100ms);
  EXPECT_FALSE(leaving.done());
  job.world.kill(job.rank(2).node.loop.node());
  EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms));
}

TEST(SimPlayedGuest, IsBackAndWaitedForNoMore) {
  WithGuest job(true, 0);
  job.guest.hang_up();
  job.pass(10ms);
  job.guest.call_again();
  job.guest.say(wire::Return{3});
  Stop stop;
  Task<void> leaving = job.rank(0).meeting->leave(stop);
  leaving.start();
  job.guest.hear<wire::Gone>();
  job.guest.farewell();
  EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms));
  job.expect_none_lost();
}

// Its port may be anybody's on that host.
TEST(SimPlayedGuest, LosesItsConnectionWhereItsProcessIsNotSeen) {
  MeetingJob job(3);
  job.rank(2).first = 0;
  job.rank(2).listen();
  wire::Arrive said = job.rank(2).introduction();
  said.process.clear();
  job.rank(0).start();
  job.rank(1).start();
  PlayedGuest guest(job, 2);
  guest.meet(said);
  ASSERT_TRUE(job.run_until([&] { return job.all_done(); }, 100ms));
  guest.hang_up();
  job.world.run_until(after(job.world.now(), 1s));
  for (const int one : {0, 1}) EXPECT_EQ(job.rank(one).lost.ranks, std::vector<int>{2}) << one;
}

}  // namespace
}  // namespace aiacc

// What no rank says in a meeting, and what becomes of whoever says it.
#include "runtime/played_meeting_test.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using namespace meeting_sim;

bool says(const std::string& sentence, const std::string& part) {
  if (sentence.find(part) != std::string::npos) return true;
  ADD_FAILURE() << "'" << part << "' is not in: " << sentence;
  return false;
}

// --- rank 0 ---------------------------------------------------------------------------------------------------------------

TEST(SimPlayedRankZero, TellsOfLosses) {
  for (const std::int32_t lost : {0, 2}) {
    MeetingJob job(3);
    PlayedRankZero zero(job);
    zero.meet(job.rank(1));
    zero.say(wire::RankLost{lost, "it is dead"});
    ASSERT_TRUE(job.run_until([&] { return !job.rank(1).lost.ranks.empty(); }, 1s)) << lost;
    EXPECT_EQ(job.rank(1).lost.ranks, std::vector<int>{lost});
    EXPECT_EQ(job.rank(1).lost.sentences[0], "it is dead");
  }
}

TEST(SimPlayedRankZero, ThatTellsOfALossThatCannotBeIsLostItself) {
  for (const std::int32_t lost : {-1, 1, 3}) {
    MeetingJob job(3);
    PlayedRankZero zero(job);
    zero.meet(job.rank(1));
    zero.say(wire::RankLost{lost, "it is dead"});
    ASSERT_TRUE(job.run_until([&] { return !job.rank(1).lost.ranks.empty(); }, 1s)) << lost;
    EXPECT_EQ(job.rank(1).lost.ranks, std::vector<int>{0});
    EXPECT_EQ(job.rank(1).lost.sentences[0],
              fmt::format("rank 0 (host0) went away: it tells of the loss of rank {}, of 3 ranks", lost));
  }
}

TEST(SimPlayedRankZero, ThatListsAnotherNumberOfRanksIsCalledAgain) {
  for (const int ranks : {2, 4}) {
    MeetingJob job(3);
    PlayedRankZero zero(job);
    wire::Roster other = zero.roster;
    other.ranks.resize(static_cast<std::size_t>(ranks));
    job.rank(1).start();
    zero.receive();
    zero.say(other);
    zero.say(wire::ReturnTo{1});
    EXPECT_EQ(zero.receive().rank, 1);
    EXPECT_FALSE(job.rank(1).roster) << ranks;
  }
}

TEST(SimPlayedRankZero, ThatTellsWhereRanksCannotBeEndsTheMeeting) {
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
    MeetingJob job(3);
    PlayedRankZero zero(job);
    job.rank(1).start();
    zero.receive();
    zero.say(zero.roster);
    zero.say(wire::ReturnTo{1});
    zero.hear<wire::Neighbours>();
    zero.say(wire::Settled{one.firsts});
    ASSERT_TRUE(job.run_until([&] { return job.rank(1).done(); }, 1s)) << one.says;
    ASSERT_TRUE(job.rank(1).error) << one.says;
    EXPECT_EQ(job.rank(1).error->code(), Code::kProtocol);
    EXPECT_EQ(job.rank(1).error->message(), one.says);
  }
}

TEST(SimPlayedRankZero, HearsAFarewellWhenItIsGone) {
  MeetingJob job(2);
  PlayedRankZero zero(job);
  zero.meet(job.rank(1));
  zero.say(wire::Gone{});
  EXPECT_EQ(zero.end(), "in order");
  zero.hang_up();
  job.run_until([] { return false; }, 10s);
  EXPECT_TRUE(job.rank(1).lost.ranks.empty());
}

// It had begun to leave, and its last words may be lost; rank 0 leaves meanwhile.
TEST(SimPlayedRankZero, HearsTheLastWordsAgainOnTheNextConnection) {
  MeetingJob job(2);
  PlayedRankZero zero(job);
  zero.meet(job.rank(1));
  Stop stop;
  Task<void> leaving = job.rank(1).meeting->leave(stop);
  leaving.start();
  zero.hear<wire::Leave>();
  zero.hang_up();
  EXPECT_EQ(zero.receive_again().heard, 3u);
  zero.hear<wire::Leave>();
  EXPECT_EQ(zero.end(), "in order");
  EXPECT_FALSE(leaving.done());
  zero.say(wire::Gone{});
  EXPECT_TRUE(job.run_until([&] { return leaving.done(); }, 100ms));
  EXPECT_TRUE(job.rank(1).lost.ranks.empty());
}

// --- a guest --------------------------------------------------------------------------------------------------------------

// Ranks 0 and 1 are real, each on a host of its own.
struct WithGuest : MeetingJob {
  explicit WithGuest(bool meet = true) : MeetingJob(3) {
    rank(0).start();
    rank(1).start();
    if (meet) guest.meet();
    run_until([this] { return all_done(); }, 100ms);
  }
  void pass(Duration time) {
    run_until([] { return false; }, time);
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

TEST(SimPlayedGuest, TellsOfAnEndBeforeItIsKnownWhoIsOnItsHost) {
  WithGuest job(false);
  job.guest.call();
  job.guest.say(job.rank(2).introduction());
  job.guest.hear<wire::Roster>();
  job.guest.say(wire::RankLost{1, "it is dead"});
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
  EXPECT_NE(guest.end(), "in order");
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
  EXPECT_NE(guest.end(), "in order");
  job.rank(1).start();
  job.rank(2).start();
  job.expect_met();
}

// Its broken connection may stand for long where it cannot be told: the next one takes its place all the same.
TEST(SimPlayedGuest, IsBackWhileItsOldConnectionStands) {
  WithGuest job;
  const auto before = job.guest.call_again();
  job.guest.say(wire::Return{3});
  says(job.guest.end_of(*before), "closed the connection without a farewell");
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
  EXPECT_NE(job.guest.end(), "in order");
  job.pass(10s);
  EXPECT_TRUE(job.rank(0).lost.ranks.empty()) << "the connection before stands";
}

}  // namespace
}  // namespace aiacc

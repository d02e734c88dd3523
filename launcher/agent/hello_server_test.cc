// What a HelloServer answers: who may claim a rank, the start barrier of one host and of several, losses, and unauthenticated peers.
#include "launcher/agent/hello_server.h"

#include <gtest/gtest.h>

#include "launcher/agent/hello_server_fixture_test.h"

namespace aiacc::launcher {
namespace {

TEST_F(HelloServerTest, StartBarrierGivesEachItsLocalRankAndTheSegment) {
  serve(2);
  Client first = hello(1, 2);
  settle(1);
  EXPECT_TRUE(initialised_.empty());
  Client second = hello(0, 2);
  for (Client* client : {&first, &second}) {
    const auto welcome = next(*client).as<wire::Welcome>();
    EXPECT_EQ(welcome.rank, client == &first ? 1 : 0);
    EXPECT_EQ(welcome.size, 2);
    EXPECT_EQ(welcome.local_size, 2);
    EXPECT_EQ(welcome.job, 42u);
    EXPECT_EQ(welcome.segment_nonce, 1u);
    EXPECT_EQ(welcome.hosts_of_ranks, (std::vector<std::uint32_t>{0, 0}));
    EXPECT_TRUE(static_cast<bool>(io::take_descriptor(*client->stream)));
  }
  EXPECT_EQ(initialised_.size(), 2u);
}

TEST_F(HelloServerTest, LeaveIsAnsweredAndASecondProgramMeetsANewStartBarrier) {
  serve(1);
  for (int program = 1; program <= 2; ++program) {
    Client client = hello(0, 1);
    EXPECT_EQ(next(client).as<wire::Welcome>().segment_nonce, static_cast<std::uint64_t>(program));
    send(client, wire::Leave{});
    next(client).as<wire::Gone>();
    EXPECT_EQ(finalized_.size(), static_cast<std::size_t>(program));
  }
}

TEST_F(HelloServerTest, VersionsThatDifferAreOneSentenceForEachRank) {
  serve(3);
  Client first = hello(0, 3, "1.0");
  settle(1);
  Client second = hello(2, 3, "1.1");
  Client third = hello(1, 3, "1.0");
  for (Client* client : {&first, &second, &third}) {
    const auto refused = next(*client).as<wire::Refused>();
    EXPECT_EQ(refused.code, static_cast<std::int32_t>(Code::kMismatch));
    EXPECT_EQ(refused.sentence, "rank 0 uses aiacc 1.0 and rank 2 aiacc 1.1: all ranks of a job need the same version");
  }
  ASSERT_EQ(refusals_.size(), 1u);
  EXPECT_EQ(refusals_[0].first, MessageId::kVersions);
}

TEST_F(HelloServerTest, AWrongSizeEndsTheWaitOfTheOthersToo) {
  serve(2);
  Client first = hello(0, 2);
  settle(1);
  Client second = hello(1, 3);
  for (Client* client : {&first, &second}) {
    EXPECT_EQ(next(*client).as<wire::Refused>().sentence,
              "rank 1 says that the job has 3 ranks, and aiaccrun started 2");
  }
}

TEST_F(HelloServerTest, ASecondLiveClaimIsRefusedAndTheFirstGoesOn) {
  serve(2);
  Client first = hello(0, 2);
  settle(1);
  Client again = hello(0, 2);
  const auto refused = next(again).as<wire::Refused>();
  EXPECT_NE(refused.sentence.find("claims rank 0, which process " + std::to_string(::getpid())), std::string::npos);
  Client second = hello(1, 2);
  EXPECT_EQ(next(first).as<wire::Welcome>().rank, 0);
}

TEST_F(HelloServerTest, AClaimOfADeadProcessIsFree) {
  serve(2);
  Client dead = hello(0, 2);
  settle(1);
  host_.process_state = 'Z';
  Client heir = hello(0, 2);
  Client second = hello(1, 2);
  EXPECT_EQ(next(heir).as<wire::Welcome>().rank, 0);
}

TEST_F(HelloServerTest, TheOthersHearOfALossAtOnce) {
  serve(3);
  std::vector<Client> clients;
  for (int rank = 0; rank < 3; ++rank) clients.push_back(hello(rank, 3));
  for (Client& client : clients) next(client).as<wire::Welcome>();
  server_->rank_exited(1, "was killed by signal 9 (Killed)");
  for (int rank : {0, 2}) {
    const auto lost = next(clients[static_cast<std::size_t>(rank)]).as<wire::RankLost>();
    EXPECT_EQ(lost.rank, 1);
    EXPECT_EQ(lost.sentence, "rank 1 on host a was killed by signal 9 (Killed)");
  }
}

TEST_F(HelloServerTest, WhomARankHadLostIsKnownWhenItHasEnded) {
  serve(3);
  std::vector<Client> clients;
  for (int rank = 0; rank < 3; ++rank) clients.push_back(hello(rank, 3));
  for (Client& client : clients) next(client).as<wire::Welcome>();
  send(clients[0], wire::PeerLost{2, 5});
  send(clients[0], wire::PeerLost{1, 6});
  clients[0].frames.reset();
  clients[0].stream.reset();
  loop_.run(server_->drain_session(0, stop_));
  EXPECT_EQ(server_->lost_peer_of(0), 2) << "the first counts";
  EXPECT_EQ(server_->lost_peer_of(1), -1);
  EXPECT_EQ(server_->unauthenticated(), 6u);
  send(clients[1], wire::PeerLost{2, 3});
  send(clients[1], wire::Leave{4});
  while (next(clients[1]).type == wire::RankLost::kType) {  // skip the loss of rank 0, up to the good-bye
  }
  EXPECT_EQ(server_->unauthenticated(), 10u) << "each once";
  loop_.run(server_->drain_session(1, stop_));  // returns soon although its connection is still open
}

TEST_F(HelloServerTest, ThePathThatARankHadLostIsKnownWhenItHasEnded) {
  serve(2);
  std::vector<Client> clients;
  for (int rank = 0; rank < 2; ++rank) clients.push_back(hello(rank, 2));
  for (Client& client : clients) next(client).as<wire::Welcome>();
  send(clients[0], wire::PathLost{"the path to rank 1 was broken", 5});
  send(clients[0], wire::PathLost{"the path to rank 7 was broken", 6});
  clients[0].frames.reset();
  clients[0].stream.reset();
  loop_.run(server_->drain_session(0, stop_));
  EXPECT_EQ(server_->lost_path_of(0), "the path to rank 1 was broken") << "the first counts";
  EXPECT_EQ(server_->lost_path_of(1), "");
  EXPECT_EQ(server_->lost_peer_of(0), -1) << "no rank is lost";
  EXPECT_EQ(server_->unauthenticated(), 6u);
}

TEST_F(HelloServerTest, WhoIsRefusedForALossHasLostThatRank) {
  serve(2);
  Client first = hello(0, 2);
  settle(1);
  server_->rank_exited(1, "was killed by signal 9 (Killed)");
  EXPECT_EQ(next(first).as<wire::RankLost>().rank, 1);
  next(first).as<wire::Refused>();
  EXPECT_EQ(server_->lost_peer_of(0), 1);
  EXPECT_EQ(server_->lost_peer_of(1), -1);
}

TEST_F(HelloServerTest, AClosedConnectionIsALossToo) {
  serve(2);
  Client first = hello(0, 2);
  Client second = hello(1, 2);
  next(first).as<wire::Welcome>();
  next(second).as<wire::Welcome>();
  second.frames.reset();
  second.stream.reset();
  EXPECT_EQ(next(first).as<wire::RankLost>().rank, 1);
}

TEST_F(HelloServerTest, WhoWaitsForARankThatEndedIsToldSo) {
  serve(2);
  Client first = hello(0, 2);
  settle(1);
  server_->rank_exited(1, "exited with status 0");
  EXPECT_EQ(next(first).as<wire::RankLost>().rank, 1);
  const auto refused = next(first).as<wire::Refused>();
  EXPECT_EQ(refused.code, static_cast<std::int32_t>(Code::kPeerFailed));
  EXPECT_EQ(refused.sentence, "rank 1 on host a exited with status 0 and takes no part any more");
  Client late = hello(0, 2);
  EXPECT_EQ(next(late).as<wire::RankLost>().rank, 1);
  next(late).as<wire::Refused>();
}

// aiaccrun must know that rank 0 called aiacc_init: only then is the silent end of rank 1 a failure, and the first one.
TEST_F(HelloServerTest, AHelloAfterARankEndedIsReportedBeforeItIsRefused) {
  serve(2);
  server_->rank_exited(1, "exited with status 0");
  Client late = hello(0, 2);
  EXPECT_EQ(next(late).as<wire::RankLost>().rank, 1);
  next(late).as<wire::Refused>();
  EXPECT_EQ(connected_, std::vector<int>{0});
  EXPECT_EQ(server_->lost_peer_of(0), 1);
}

TEST_F(HelloServerTest, AnUnauthenticatedPeerIsRefused) {
  serve(1);
  host_.parent = 1;
  server_->set_processes({99});
  Client unauthenticated = hello(0, 1);
  EXPECT_NE(next(unauthenticated).as<wire::Refused>().sentence.find("does not descend from a rank of this job"),
            std::string::npos);
}

TEST_F(HelloServerTest, WithOtherHostsTheStartBarrierIsHalfOurs) {
  serve(2, 3);
  Client first = hello(1, 3);
  settle(1);
  EXPECT_TRUE(ready_.empty());
  Client second = hello(0, 3);
  settle(2);
  ASSERT_EQ(ready_.size(), 1u);
  EXPECT_EQ(ready_[0].first, "1.0");
  EXPECT_EQ(ready_[0].second, (std::vector<wire::RankPorts>{{{wire::tcp_address(7000)}}, {{wire::tcp_address(7001)}}}));
  EXPECT_TRUE(initialised_.empty());
  server_->open_world(world_of(3));
  for (Client* client : {&first, &second}) {
    const auto welcome = next(*client).as<wire::Welcome>();
    EXPECT_EQ(welcome.size, 3);
    EXPECT_EQ(welcome.local_size, 2);
    EXPECT_EQ(welcome.hosts_of_ranks, (std::vector<std::uint32_t>{0, 0, 1}));
    ASSERT_EQ(welcome.hosts.size(), 2u);
    EXPECT_EQ(welcome.hosts[1].addresses, (std::vector<std::string>{"10.0.0.2"}));
    EXPECT_EQ(welcome.ports, world_of(3).ports);
    EXPECT_EQ(welcome.secret, "secret");
  }
  server_->open_world(world_of(3));  // a second Welcome must not follow
  EXPECT_EQ(initialised_.size(), 2u);
}

TEST_F(HelloServerTest, WhatOtherHostsRefuseIsRefusedHere) {
  serve(1, 2);
  Client client = hello(0, 2);
  settle(1);
  server_->refuse_world(Code::kMismatch, "they do not fit");
  EXPECT_EQ(next(client).as<wire::Refused>().sentence, "they do not fit");
  Client late = hello(0, 2);
  EXPECT_EQ(next(late).as<wire::Refused>().code, static_cast<std::int32_t>(Code::kMismatch));
}

TEST_F(HelloServerTest, ALossOnAnotherHostReachesOurRanks) {
  serve(1, 2);
  Client client = hello(0, 2);
  settle(1);
  server_->open_world(world_of(2));
  next(client).as<wire::Welcome>();
  server_->lose_remote(1, "rank 1 on host b was killed by signal 9 (Killed)");
  const auto lost = next(client).as<wire::RankLost>();
  EXPECT_EQ(lost.rank, 1);
  EXPECT_EQ(lost.sentence, "rank 1 on host b was killed by signal 9 (Killed)");
  EXPECT_TRUE(lost_.empty()) << "aiaccrun knows";
}

TEST_F(HelloServerTest, ALossHereIsToldToOtherHosts) {
  serve(2, 3);
  std::vector<Client> clients;
  for (int rank = 0; rank < 2; ++rank) clients.push_back(hello(rank, 3));
  settle(2);
  server_->open_world(world_of(3));
  for (Client& client : clients) next(client).as<wire::Welcome>();
  server_->rank_exited(1, "exited with status 3");
  EXPECT_EQ(next(clients[0]).as<wire::RankLost>().rank, 1);
  ASSERT_EQ(lost_.size(), 1u);
  EXPECT_EQ(lost_[0], (std::pair<int, std::string>(1, "rank 1 on host a exited with status 3")));
}

TEST_F(HelloServerTest, AFinalizedRankIsNoLoss) {
  serve(1, 2);
  Client client = hello(0, 2);
  settle(1);
  server_->open_world(world_of(2));
  next(client).as<wire::Welcome>();
  send(client, wire::Leave{});
  next(client).as<wire::Gone>();
  server_->rank_exited(0, "exited with status 0");
  EXPECT_TRUE(lost_.empty());
}

TEST_F(HelloServerTest, WhoLeavesBetweenTheStartBarriersIsLostEverywhere) {
  serve(2, 3);
  Client first = hello(0, 3);
  Client second = hello(1, 3);
  settle(2);
  second.frames.reset();
  second.stream.reset();
  EXPECT_EQ(next(first).as<wire::RankLost>().rank, 1);
  EXPECT_EQ(next(first).as<wire::Refused>().code, static_cast<std::int32_t>(Code::kPeerFailed));
  ASSERT_EQ(lost_.size(), 1u);
  EXPECT_EQ(lost_[0].first, 1);
  server_->open_world(world_of(3));
  EXPECT_TRUE(initialised_.empty());
}

TEST_F(HelloServerTest, NonsenseEndsTheConnectionAndNothingElse) {
  serve(1);
  Client rude = hello(0, 1);
  next(rude).as<wire::Welcome>();
  const std::string nonsense(64, '\xff');
  loop_.run(io::write_all(*rude.stream, std::as_bytes(std::span(nonsense)), stop_));
  EXPECT_EQ(next(rude).type, 0);
  Client good = hello(0, 1);
  EXPECT_EQ(next(good).as<wire::Welcome>().rank, 0);
}

TEST_F(HelloServerTest, WhoWaitsIsToldWhoIsMissing) {
  serve(2);
  Client first = hello(0, 2);
  settle(1);
  server_->send_missing("rank 1 did not come");
  EXPECT_EQ(next(first).as<wire::Missing>().sentence, "rank 1 did not come");
  Client second = hello(1, 2);
  EXPECT_EQ(next(first).as<wire::Welcome>().rank, 0);
  EXPECT_EQ(next(second).as<wire::Welcome>().rank, 1);
  server_->send_missing("nobody");
  server_->rank_exited(1, "exited with status 3");
  EXPECT_EQ(next(first).as<wire::RankLost>().rank, 1) << "it waits no longer";
}

TEST_F(HelloServerTest, AnotherUserIsToldWhoIsServed) {
  user_ = ::geteuid() + 1;
  serve(1);
  Client foreign = hello(0, 1);
  const auto refused = next(foreign).as<wire::Refused>();
  EXPECT_EQ(refused.code, static_cast<std::int32_t>(Code::kInvalidArgument));
  EXPECT_EQ(refused.sentence, "the agent of this job serves user " + std::to_string(user_) +
                                  " only, and this process belongs to user " + std::to_string(::geteuid()));
  EXPECT_EQ(next(foreign).type, 0) << "and let go";
  EXPECT_EQ(server_->unauthenticated(), 1u);
  EXPECT_TRUE(connected_.empty());
}

TEST_F(HelloServerTest, AnotherUserHoldsFewConnections) {
  user_ = ::geteuid() + 1;
  serve(1);
  std::vector<std::unique_ptr<io::Stream>> silent;
  for (int i = 0; i < 64; ++i) silent.push_back(loop_.run(net_.connect(listener_address_, stop_)));
  Client late = hello(0, 1);
  EXPECT_THROW(EXPECT_EQ(next(late).type, 0), Error) << "what it said was not even read";
  EXPECT_EQ(server_->unauthenticated(), 65u);
}

TEST_F(HelloServerTest, AnotherUserDecidesOnNoMemory) {
  user_ = ::geteuid() + 1;
  serve(1);
  Client foreign;
  foreign.stream = loop_.run(net_.connect(listener_address_, stop_));
  foreign.frames = std::make_unique<FrameReader>(*foreign.stream);
  const std::uint32_t announced = 1u << 19;  // a length that a rank may send
  loop_.run(io::write_all(*foreign.stream, std::as_bytes(std::span(&announced, 1)), stop_));
  EXPECT_EQ(next(foreign).type, 0);
}

}  // namespace
}  // namespace aiacc::launcher

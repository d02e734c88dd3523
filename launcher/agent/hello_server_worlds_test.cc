// The worlds of an elastic job: who is replaced, who is left out, and what ranks are called in each.
#include <gtest/gtest.h>

#include "launcher/agent/hello_server_fixture_test.h"

namespace aiacc::launcher {
namespace {

// Of ranks 0 and 1 here and 2 on another host; `order`: who is which rank.
wire::OpenWorld elastic_world(std::uint32_t answers, std::vector<std::int32_t> order) {
  wire::OpenWorld world = world_of(static_cast<int>(order.size()));
  world.answers = answers;
  for (const std::int32_t rank : order) world.hosts_of_ranks.push_back(rank == 2 ? 1 : 0);
  world.ranks = std::move(order);
  return world;
}

TEST_F(HelloServerTest, WorldsOfAnElasticJobFollowEachOther) {
  serve(2, 3, true);
  Client zero = hello(0, 3);
  Client one = hello(1, 3);
  settle(2);
  server_->open_world(elastic_world(1, {0, 1, 2}));
  EXPECT_EQ(next(zero).as<wire::Welcome>().rank, 0);
  EXPECT_EQ(next(one).as<wire::Welcome>().rank, 1);

  server_->rank_exited(0, "was killed by signal 9 (Killed)");
  EXPECT_EQ(next(one).as<wire::RankLost>().rank, 0);
  server_->replace(0, 1);
  send(one, wire::Leave{});
  next(one).as<wire::Gone>();
  one = hello(1, 3);
  zero = hello(0, 3);
  settle(4);
  ASSERT_EQ(ready_.size(), 2u);
  server_->open_world(elastic_world(2, {1, 2, 0}));
  const auto first = next(one).as<wire::Welcome>();
  const auto last = next(zero).as<wire::Welcome>();
  EXPECT_EQ(std::tie(first.rank, first.local_rank, first.size), std::make_tuple(0, 0, 3));
  EXPECT_EQ(std::tie(last.rank, last.local_rank, last.local_size), std::make_tuple(2, 1, 2));
  EXPECT_EQ(last.hosts_of_ranks, (std::vector<std::uint32_t>{0, 1, 0}));

  server_->lose_remote(2, "rank 2 is lost");
  EXPECT_EQ(next(zero).as<wire::RankLost>().rank, 1) << "its number in their world";
  send(zero, wire::PeerLost{1, 0});
  send(zero, wire::Leave{});
  next(zero).as<wire::Gone>();
  EXPECT_EQ(server_->lost_peer_of(0), 2) << "the number that aiaccrun knows";
}

TEST_F(HelloServerTest, AWorldWithoutWhoeverWasLeftOut) {
  serve(2, 0, true);
  Client zero = hello(0, 2);
  settle(1);
  server_->rank_exited(1, "exited with status 6");
  EXPECT_TRUE(ready_.empty());
  server_->leave_out(1);
  ASSERT_EQ(ready_.size(), 1u);
  server_->open_world(elastic_world(1, {0}));
  EXPECT_EQ(next(zero).as<wire::Welcome>().local_size, 1);
}

TEST_F(HelloServerTest, AWorldThatAnswersAnOldReportOpensNothing) {
  serve(2, 3, true);
  Client zero = hello(0, 3);
  Client one = hello(1, 3);
  settle(2);
  server_->rank_exited(1, "was killed by signal 9 (Killed)");
  server_->replace(1, 1);
  one = hello(1, 3);
  settle(3);
  ASSERT_EQ(ready_.size(), 2u);
  server_->open_world(elastic_world(1, {0, 1, 2}));
  EXPECT_TRUE(initialised_.empty());
  EXPECT_EQ(lost_.size(), 2u) << "of both ranks, in the world that does not come";
  server_->open_world(elastic_world(2, {0, 2, 1}));
  EXPECT_EQ(next(zero).as<wire::Welcome>().rank, 0);
  EXPECT_EQ(next(one).as<wire::Welcome>().rank, 2);
}

TEST_F(HelloServerTest, AnAddedRankIsAwaitedFromItsHelloOn) {
  serve(2, 0, true);
  Client zero = hello(0, 2);
  Client one = hello(1, 2);
  settle(2);
  server_->open_world(elastic_world(1, {0, 1}));
  for (Client* client : {&zero, &one}) next(*client).as<wire::Welcome>();
  server_->add(5, 1);
  server_->update_hosts(wire::kRanksAdded);
  for (Client* client : {&zero, &one}) {
    EXPECT_EQ(next(*client).as<wire::HostsUpdated>().what, wire::kRanksAdded);
    send(*client, wire::Leave{});
    next(*client).as<wire::Gone>();
  }
  zero = hello(0, 2);
  one = hello(1, 2);
  settle(4);
  ASSERT_EQ(ready_.size(), 2u) << "rank 5 has not said hello";
  EXPECT_EQ(ready_.back().second.size(), 2u);
  Client five = hello(5, 2);
  settle(5);
  ASSERT_EQ(ready_.size(), 3u);
  EXPECT_EQ(ready_.back().second.size(), 3u);
  server_->open_world(elastic_world(2, {0, 1}));
  EXPECT_EQ(lost_.size(), 2u) << "that answers the report without it";
  server_->open_world(elastic_world(3, {0, 1, 5}));
  EXPECT_EQ(next(five).as<wire::Welcome>().rank, 2);
  EXPECT_EQ(next(zero).as<wire::Welcome>().size, 3);
}

TEST_F(HelloServerTest, ADismissedRankMayFinishItsWorldAndEntersNoOther) {
  serve(3, 0, true);
  Client zero = hello(0, 3);
  Client one = hello(1, 3);
  Client two = hello(2, 3);
  settle(3);
  server_->open_world(elastic_world(1, {0, 1, 2}));
  for (Client* client : {&zero, &one, &two}) next(*client).as<wire::Welcome>();
  server_->dismiss(1, "its host is gone");
  for (Client* client : {&zero, &one, &two}) {
    send(*client, wire::Leave{});
    next(*client).as<wire::Gone>();
  }
  one = hello(1, 3);
  const auto refused = next(one).as<wire::Refused>();
  EXPECT_EQ(refused.code, static_cast<std::int32_t>(Code::kAborted));
  EXPECT_EQ(refused.sentence, "its host is gone");
  zero = hello(0, 3);
  two = hello(2, 3);
  settle(5);
  ASSERT_EQ(ready_.size(), 2u);
  EXPECT_EQ(ready_.back().second.size(), 2u);
  server_->dismiss(2, "and so is this");
  EXPECT_EQ(next(two).as<wire::Refused>().sentence, "and so is this") << "it was waiting";
  ASSERT_EQ(ready_.size(), 3u) << "what was reported with it is void";
  EXPECT_EQ(ready_.back().second.size(), 1u);
}

}  // namespace
}  // namespace aiacc::launcher

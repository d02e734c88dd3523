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

}  // namespace
}  // namespace aiacc::launcher

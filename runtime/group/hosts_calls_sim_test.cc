// Contexts on several hosts in virtual time: results of calls and messages of ranks that all live, and that calls which differ are named
// on every rank. What losses do is in hosts_sim_test.cc.
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <string>
#include <vector>

#include "runtime/group/calls_test.h"
#include "runtime/group/hosts_sim_test.h"
#include "tests/sim_job.h"

namespace aiacc {
namespace {

using sim::error_of;
using sim::SimJob;
using std::chrono::seconds;

class SimHostsCalls : public hosts_sim_test::OnHosts {};
INSTANTIATE_TEST_SUITE_P(Placements, SimHostsCalls, ::testing::ValuesIn(hosts_sim_test::kPlacements),
                         [](const auto& param) { return hosts_sim_test::text(param.param); });

TEST_P(SimHostsCalls, ManyOperationsInFlight) {
  SimJob job(GetParam());
  for (auto& rank : job.ranks) {
    for (const std::size_t count : {1, 10, 5000, 3, 300'000, 16}) rank->sum(count);
  }
  job.finish();
  for (auto& rank : job.ranks) {
    for (std::size_t i = 0; i < rank->operations.size(); ++i) {
      EXPECT_EQ(error_of(*rank->operations[i]).message(), "");
      EXPECT_EQ(rank->data[i].front(), static_cast<float>(size()));
      EXPECT_EQ(rank->data[i].back(), static_cast<float>(size()));
    }
    EXPECT_TRUE(rank->reports.empty());
  }
}

// --- messages ----------------------------------------------------------------------------------------------------------

TEST_P(SimHostsCalls, MessagesOfAPairAreMatchedByTagInTheOrderOfTheCalls) {
  SimJob job(GetParam());
  struct Message {
    std::uint32_t tag;
    std::size_t count;
  };
  // The last tag is asked for first; some fit into an eager message and some do not.
  const Message sent[] = {{1, 10}, {2, 50'000}, {1, 20'000}, {2, 7}, {1, 3}};
  const int order[] = {1, 3, 0, 2, 4};
  const Buffer nothing;
  std::deque<std::vector<float>> got;
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      for (int i = 0; i < 5; ++i) {
        Call call = call_of(Collective::kSend, sent[i].count, to);
        call.tag = sent[i].tag;
        auto& data = job[from].data.emplace_back(sent[i].count, static_cast<float>(from * 100 + to * 10 + i));
        job[from].start(call, buffer_of(data), nothing);
      }
      for (const int i : order) {
        Call call = call_of(Collective::kRecv, sent[i].count, from);
        call.tag = sent[i].tag;
        job[to].start(call, nothing, buffer_of(got.emplace_back(sent[i].count)));
      }
    }
  }
  job.finish();
  for (auto& rank : job.ranks) {
    for (const auto& operation : rank->operations) EXPECT_EQ(error_of(*operation).message(), "");
  }
  auto each = got.begin();
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      for (const int i : order) {
        EXPECT_EQ(each->front(), static_cast<float>(from * 100 + to * 10 + i));
        EXPECT_EQ(each->back(), each->front());
        ++each;
      }
    }
  }
}

TEST_P(SimHostsCalls, ASendToOneselfNeedsNoReceiveFirst) {
  SimJob job(GetParam());
  const Buffer nothing;
  std::vector<float> got(50'000);
  for (const float value : {1.0f, 2.0f}) {
    Call call = call_of(Collective::kSend, got.size(), 0);
    auto& data = job[0].data.emplace_back(got.size(), value);
    job[0].start(call, buffer_of(data), nothing);
    job.finish();
    EXPECT_EQ(error_of(*job[0].operations.back()).message(), "");
    data.assign(data.size(), -1.0f);
  }
  for (const float value : {1.0f, 2.0f}) {
    job[0].start(call_of(Collective::kRecv, got.size(), 0), nothing, buffer_of(got));
    job.finish();
    EXPECT_EQ(error_of(*job[0].operations.back()).message(), "");
    EXPECT_EQ(got.back(), value);
  }
}

// --- disagreement --------------------------------------------------------------------------------------------------------

constexpr Collective kCollectives[] = {Collective::kAllreduce, Collective::kReduce,        Collective::kBroadcast,
                                       Collective::kAllgather, Collective::kReduceScatter, Collective::kBarrier,
                                       Collective::kAlltoall,  Collective::kGather,        Collective::kScatter};

bool has_blocks_for_all(const Call& call, bool sent) {
  if (call.kind == Collective::kAlltoall) return true;
  if (sent) return call.kind == Collective::kReduceScatter || call.kind == Collective::kScatter;
  return call.kind == Collective::kAllgather || call.kind == Collective::kGather;
}

TEST_P(SimHostsCalls, CallsThatDifferAreNamedOnEveryRankWithinASecond) {
  for (const std::size_t count : {5, 50'000}) {
    for (const Collective kind : kCollectives) {
      for (const Collective other : kCollectives) {
        for (int odd = 0; odd < size(); ++odd) {
          // The same collective differs in its root, and where it has none in its count.
          Call call = call_of(kind, count, 0);
          Call differs = call_of(other, count, 0);
          if (kind == other && kind == Collective::kBarrier) continue;
          const bool has_root = kind == Collective::kReduce || kind == Collective::kBroadcast;
          // Where hosts have several ranks, short blocks travel in other ways than long ones.
          const bool has_ways =
              kind == Collective::kAlltoall || kind == Collective::kGather || kind == Collective::kScatter;
          if (kind == other && has_root) differs.root = 1;
          if (kind == other && !has_root) differs.count = has_ways ? (count == 5 ? 50'000 : 5) : count + 1;
          SCOPED_TRACE(call.describe() + " against " + differs.describe() + " on rank " + std::to_string(odd));
          SimJob job(GetParam());
          for (int rank = 0; rank < size(); ++rank) {
            const Call& mine = rank == odd ? differs : call;
            auto& send = job[rank].data.emplace_back(mine.count * GetParam().size());
            auto& recv = job[rank].data.emplace_back(mine.count * GetParam().size());
            Buffer from = buffer_of(send), to = buffer_of(recv);
            const std::size_t all = mine.bytes() * GetParam().size();
            from.bytes = has_blocks_for_all(mine, true) ? all : mine.bytes();
            to.bytes = has_blocks_for_all(mine, false) ? all : mine.bytes();
            job[rank].start(mine, from, to);
          }
          job.finish();
          ASSERT_LT(job.elapsed(), seconds(1));
          // Who needs nothing from anybody may be done before it is noticed; its next call learns of it.
          job.world.run_until(after(job.world.now(), seconds(1)));
          const Buffer nothing;
          for (int rank = 0; rank < size(); ++rank) job[rank].start(Call{}, nothing, nothing);
          job.finish();
          for (int rank = 0; rank < size(); ++rank) {
            const bool late = error_of(*job[rank].operations[0]).code() == Code::kOk;
            const Error error = error_of(*job[rank].operations[late ? 1 : 0]);
            ASSERT_EQ(error.code(), Code::kMismatch) << error.message();
            const std::string odd_one = "rank " + std::to_string(odd);
            ASSERT_NE(error.message().find(odd_one), std::string::npos) << error.message();
            ASSERT_NE(error.message().find(call.describe()), std::string::npos) << error.message();
            ASSERT_NE(error.message().find(differs.describe()), std::string::npos) << error.message();
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace aiacc

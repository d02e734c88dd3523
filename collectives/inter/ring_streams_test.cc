// Rings over several TCP connections, each of which the network limits: in virtual time, the share of the line that they reach.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "base/sim/sim_compute.h"
#include "base/task/scope.h"
#include "collectives/inter/ring_allreduce.h"
#include "transports/messenger.h"
#include "transports/tcp/tcp_fixture_test.h"

namespace aiacc {
namespace {

using tcp_test::SimTcp;

constexpr std::uint64_t kGigabit = 125'000'000;  // bytes a second

// Ranks on hosts of their own, which may send so many bytes a second, over connections of which each may carry `cap`.
class CappedRing : public SimTcp {
 public:
  CappedRing(int ranks, io::StreamRange streams, std::uint64_t cap, std::uint64_t seed)
      : SimTcp(ranks, seed, Encryption::kNone, std::chrono::seconds(2), streams, {}, model(cap)) {
    std::vector<Member> members;
    for (int rank = 0; rank < ranks; ++rank) {
      members.push_back({static_cast<std::uint32_t>(rank), 0, static_cast<std::uint32_t>(rank)});
    }
    view_ = std::make_shared<const View>(1, 0, 0, 0, std::move(members));
    for (int rank = 0; rank < ranks; ++rank) ranks_.push_back(std::make_unique<Rank>(*this, rank));
  }

  // An allreduce of ones, and the seconds that it takes.
  double allreduce(std::size_t bytes) {
    const std::size_t count = bytes / sizeof(float);
    const Instant began = world.now();
    ++sequence_;
    for (const auto& rank : ranks_) {
      rank->data.assign(count, 1.0F);
      rank->root.emplace(rank->loop, perform(*rank, count), static_cast<Root::Owner&>(*rank));
      rank->ended = false;
      rank->root->start();
    }
    EXPECT_TRUE(run_until(
        [this] { return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->ended; }); }));
    for (const auto& rank : ranks_) {
      EXPECT_EQ(rank->data.front(), static_cast<float>(ranks_.size()));
      EXPECT_EQ(rank->data.back(), static_cast<float>(ranks_.size()));
    }
    return seconds(world.now() - began);
  }

 private:
  struct Rank final : Root::Owner {
    Rank(CappedRing& owner, int its)
        : rank(its),
          loop(owner.hosts[static_cast<std::size_t>(its)]->loop),
          compute(loop),
          messenger(loop, owner.port(its), owner.view_, its) {}
    void root_ended(Root&, std::exception_ptr error) noexcept override {
      EXPECT_FALSE(error);
      ended = true;
    }
    int rank;
    sim::SimLoop& loop;
    sim::SimCompute compute;
    Messenger messenger;
    Stop stop;
    std::vector<float> data;
    std::optional<Root> root;
    bool ended = true;
  };

  Task<void> perform(Rank& rank, std::size_t count) {
    Team team{view_, rank.rank, rank.loop, rank.compute, nullptr, &rank.messenger.mailbox()};
    Call call;
    call.kind = Collective::kAllreduce;
    call.count = count;
    const Buffer data{reinterpret_cast<std::byte*>(rank.data.data()), count * sizeof(float)};
    Operation op{team, call, sequence_, rank.stop, data, data};
    co_await inter::ring_allreduce(op);
  }

  static sim::StreamModel model(std::uint64_t cap) {
    sim::StreamModel model;
    model.bytes_per_second = cap;
    model.host_bytes_per_second = kGigabit;
    return model;
  }

  ViewPtr view_;
  std::uint64_t sequence_ = 0;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// The share of the line that the payload has while it is on its way: two ranks send and receive all of it.
double share_of_line(CappedRing& net, std::size_t bytes) {
  constexpr int kCalls = 8;
  double time = 0;
  for (int i = 0; i < kCalls; ++i) time += net.allreduce(bytes);
  return kCalls * static_cast<double>(bytes) / time / kGigabit;
}

class Streams : public testing::TestWithParam<std::uint64_t> {};  // of a seed
INSTANTIATE_TEST_SUITE_P(Seeds, Streams, testing::Values(1, 2, 3, 4, 5));

TEST_P(Streams, OneConnectionHasTheLine) {
  CappedRing net(2, {1, 1}, kGigabit, GetParam());
  net.allreduce(1 << 20);  // connects
  EXPECT_GE(share_of_line(net, 16 << 20), 0.985);
}

TEST_P(Streams, TwoOfSixtyPercentHaveTheLine) {
  CappedRing net(2, {2, 2}, kGigabit * 6 / 10, GetParam());
  net.allreduce(16 << 20);
  EXPECT_GE(share_of_line(net, 16 << 20), 0.95);
  EXPECT_GE(share_of_line(net, 4 << 20), 0.9);
}

TEST_P(Streams, FourOfThirtyPercentHaveTheLine) {
  CappedRing net(2, {4, 4}, kGigabit * 3 / 10, GetParam());
  net.allreduce(16 << 20);
  EXPECT_GE(share_of_line(net, 16 << 20), 0.95);
  EXPECT_GE(share_of_line(net, 64 << 20), 0.95);
}

TEST_P(Streams, EightOfThirtyPercentLoseLittle) {
  CappedRing net(2, {8, 8}, kGigabit * 3 / 10, GetParam());
  net.allreduce(16 << 20);
  EXPECT_GE(share_of_line(net, 16 << 20), 0.92);
}

}  // namespace
}  // namespace aiacc

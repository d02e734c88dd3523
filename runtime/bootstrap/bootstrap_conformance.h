// The conformance tests of every bootstrap provider. Each provider's test supplies a BootstrapWorld.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/io/real_clock.h"
#include "base/task/leave_deadline.h"
#include "runtime/bootstrap/bootstrap_world_test.h"

namespace aiacc::conformance {

class BootstrapConformance : public testing::TestWithParam<std::function<std::unique_ptr<BootstrapWorld>()>> {
 protected:
  struct Heard final : BootstrapObserver {
    std::vector<int> lost;
    std::vector<Code> codes;
    void on_rank_lost(int rank, std::exception_ptr error) noexcept override {
      lost.push_back(rank);
      codes.push_back(as_error(error).code());
      EXPECT_EQ(as_error(error).peer(), rank) << "members that hear of it from this one learn by that who is lost";
    }
  };

  BootstrapConformance()
      : world_(GetParam()()), bootstrapped_(static_cast<std::size_t>(world_->size())), heard_(bootstrapped_.size()) {}

  static Task<void> join_one(Bootstrap* provider, BootstrapResult* bootstrapped, Heard* heard) {
    Stop stop;
    *bootstrapped = co_await provider->join(stop);
    provider->observe(*heard);
  }
  static Task<void> leave_one(Bootstrap* provider) {
    Stop stop;
    co_await provider->leave(after(io::RealClock().now(), LeaveDeadline::kLimit), stop);
  }
  void join() {
    std::vector<Task<void>> tasks;
    for (std::size_t rank = 0; rank < bootstrapped_.size(); ++rank) {
      tasks.push_back(join_one(&world_->provider(static_cast<int>(rank)), &bootstrapped_[rank], &heard_[rank]));
    }
    world_->run(std::move(tasks));
  }
  void leave(const std::vector<int>& ranks) {
    std::vector<Task<void>> tasks;
    for (const int rank : ranks) tasks.push_back(leave_one(&world_->provider(rank)));
    world_->run(std::move(tasks));
  }
  static Task<void> pass(Loop* loop, Duration span) {
    Stop stop;
    co_await sleep_for(*loop, span, stop);
  }
  void wait(Duration span) {
    std::vector<Task<void>> tasks;
    tasks.push_back(pass(&world_->loop(), span));
    world_->run(std::move(tasks));
  }

  // Until `done`, and a moment more: what is said twice has come by then, as a rule.
  void wait_for(const std::function<bool()>& done) {
    const Instant limit = after(io::RealClock().now(), std::chrono::seconds(60));
    while (!done() && io::RealClock().now() < limit) wait(std::chrono::milliseconds(1));
    wait(std::chrono::milliseconds(20));
  }
  // Whether each of the first `ranks` has heard of a loss.
  bool all_heard(int ranks) const {
    return std::none_of(heard_.begin(), heard_.begin() + ranks, [](const Heard& heard) { return heard.lost.empty(); });
  }

  std::unique_ptr<BootstrapWorld> world_;
  std::vector<BootstrapResult> bootstrapped_;
  std::vector<Heard> heard_;
};

TEST_P(BootstrapConformance, AllRanksSeeTheSameWorldAndEachItsOwnPlace) {
  join();
  for (int rank = 0; rank < world_->size(); ++rank) {
    const BootstrapResult& bootstrapped = bootstrapped_[static_cast<std::size_t>(rank)];
    EXPECT_EQ(bootstrapped.rank, rank);
    ASSERT_NE(bootstrapped.world, nullptr);
    EXPECT_EQ(bootstrapped.world->size(), world_->size());
    EXPECT_EQ(bootstrapped.world->id(), bootstrapped_[0].world->id());
    EXPECT_EQ(bootstrapped.world->rank_of(bootstrapped.world->member(rank)), rank);
    EXPECT_FALSE(bootstrapped.host_name.empty());
    EXPECT_FALSE(bootstrapped.job_name.empty());
    const auto local = bootstrapped.world->ranks_on_host_of(rank);
    EXPECT_EQ(bootstrapped.host == nullptr, local.size() == 1);
    EXPECT_EQ(bootstrapped.port == nullptr, bootstrapped.world->hosts() == 1);
    if (bootstrapped.host == nullptr) continue;
    EXPECT_EQ(bootstrapped.host->size(), static_cast<int>(local.size()));
    EXPECT_EQ(local[static_cast<std::size_t>(bootstrapped.host->rank())], rank)
        << "ranks in the domain ascend as in the world";
  }
}

TEST_P(BootstrapConformance, RanksOfAHostShareTheirMemory) {
  join();
  std::vector<std::uint32_t> lines;
  for (BootstrapResult& bootstrapped : bootstrapped_) {
    if (bootstrapped.host == nullptr) continue;  // it shares memory with no rank
    lines.push_back(bootstrapped.host->claim_lines(7, 1));
    bootstrapped.host->publish(lines.back(), 3, static_cast<std::uint64_t>(bootstrapped.rank) + 100);
  }
  for (BootstrapResult& bootstrapped : bootstrapped_) {
    if (bootstrapped.host == nullptr) continue;
    const auto local = bootstrapped.world->ranks_on_host_of(bootstrapped.rank);
    for (int other = 0; other < bootstrapped.host->size(); ++other) {
      const auto found = bootstrapped.host->find_lines(other, 7, 1);
      ASSERT_TRUE(found.has_value());
      const int rank = local[static_cast<std::size_t>(other)];
      EXPECT_EQ(bootstrapped.host->line(other, *found).word[3].load(), static_cast<std::uint64_t>(rank) + 100);
    }
  }
}

TEST_P(BootstrapConformance, LeavingInOrderIsNoLoss) {
  join();
  std::vector<int> all;
  for (int rank = 0; rank < world_->size(); ++rank) all.push_back(rank);
  leave(all);
  wait(std::chrono::milliseconds(20));
  for (const Heard& heard : heard_) EXPECT_TRUE(heard.lost.empty());
}

TEST_P(BootstrapConformance, ADeathIsHeardOnceByAllOthers) {
  join();
  const int dead = world_->size() - 1;
  if (!world_->kill(dead)) return;                     // this provider's ranks cannot die one by one
  bootstrapped_[static_cast<std::size_t>(dead)] = {};  // its port dies with the process
  wait_for([this, dead] { return all_heard(dead); });
  for (int rank = 0; rank < dead; ++rank) {
    EXPECT_EQ(heard_[static_cast<std::size_t>(rank)].lost, std::vector<int>{dead});
    EXPECT_EQ(heard_[static_cast<std::size_t>(rank)].codes, std::vector<Code>{Code::kPeerFailed});
  }
}

TEST_P(BootstrapConformance, AStopEndsTheJoin) {
  std::exception_ptr ended;
  std::vector<Task<void>> tasks;
  tasks.push_back([](Bootstrap* provider, std::exception_ptr* error) -> Task<void> {
    Stop stop;
    stop.request(std::make_exception_ptr(Error(Code::kTimeout, "too late")));
    try {
      co_await provider->join(stop);
    } catch (...) {
      *error = std::current_exception();
    }
  }(&world_->provider(0), &ended));
  world_->run(std::move(tasks));
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(as_error(ended).code(), Code::kTimeout);
}

}  // namespace aiacc::conformance

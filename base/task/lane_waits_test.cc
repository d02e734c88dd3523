// Waits for work of a lane: for one, for all of many, for any, in turn and with a time-out. Also run with the thread sanitizer.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <span>
#include <thread>
#include <vector>

#include "base/task/lane.h"
#include "base/task/lane_fixture_test.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using lane_test::BlockingLoop;
using lane_test::kAttempts;
using lane_test::Nap;
using lane_test::Rouser;

// A thread that sleeps in a wait for many is woken by the end of one of them without a search.
TEST(LaneWaits, TheEndOfOneOfManyThatAThreadSleepsOnIsNotSearchedFor) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  std::atomic<bool> driving{false};
  std::thread driver([&] {
    Nap nap(lane, 300ms, count);
    Lane::Hold hold(lane);
    driving = true;
    hold.run(nap);
  });
  while (!driving) std::this_thread::yield();
  std::deque<Nap> naps;
  std::vector<Work*> works;
  for (int i = 0; i < 1000; ++i) {
    naps.emplace_back(lane, i == 777 ? Duration(20ms) : Duration(200ms), count);
    works.push_back(&naps.back());
    lane.start(naps.back());
  }
  EXPECT_TRUE(lane.wait_any(works));
  EXPECT_TRUE(lane.wait_all(works));
  driver.join();
  EXPECT_EQ(count, 1001);
  EXPECT_LE(lane.searched(), 1000u) << "once at most, where the thread was only just going to sleep";
}

// Whatever unfinished() would say later.
TEST(LaneWaits, AWaitForWorksInTurnEndsWhenNoneIsNext) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "test");
  long count = 0;
  Nap first(lane, 2ms, count);
  struct Turns final : Lane::InTurn {
    explicit Turns(Work& what) : work(what) {}
    Work* unfinished() noexcept override { return ++asked == 2 ? nullptr : &work; }
    Work& work;
    int asked = 0;
  } turns(first);
  lane.start(first);
  EXPECT_TRUE(lane.wait_all(turns, 10s));
  EXPECT_TRUE(first.done());
  EXPECT_EQ(turns.asked, 2);
}

// Works that end with others say so without an atomic operation each; whoever sleeps on one of them is woken all the same.
TEST(LaneWaits, WhatEndsTogetherWakesItsSleepers) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "test");
  struct Part final : Work {
    void begin() noexcept override {}
    void end() noexcept { finish_with_others(); }
  };
  struct End final : Work {
    End(Lane& on, std::span<Part> what) : lane(on), parts(what) {}
    void begin() noexcept override {
      for (Part& part : parts) part.end();
      lane.finished_together();
      finish();
    }
    Lane& lane;
    std::span<Part> parts;
  };
  for (int round = 0; round < 200; ++round) {
    std::array<Part, 5> parts;
    for (Part& part : parts) lane.start(part);
    std::atomic<int> waiting{0};
    std::vector<std::thread> threads;
    for (Part& part : parts) {
      threads.emplace_back([&] {
        ++waiting;
        if (&part != &parts[0]) return void(lane.wait(part));
        std::vector<Work*> all;
        for (Part& each : parts) all.push_back(&each);
        lane.wait_any(all);
      });
    }
    while (waiting < 5) std::this_thread::yield();
    if (round % 3 == 0) std::this_thread::sleep_for(200us);
    End end(lane, parts);
    lane.run(end);
    for (std::thread& thread : threads) thread.join();
    for (const Part& part : parts) ASSERT_TRUE(part.done());
  }
}

TEST(LaneWaits, WaitsForWorksInTheirTurn) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "test");
  long count = 0;
  std::deque<Nap> naps;
  for (int i = 0; i < 20; ++i) {
    naps.emplace_back(lane, i % 3 == 0 ? Duration(2ms) : Duration::zero(), count);
    lane.start(naps.back());
  }
  struct Turns final : Lane::InTurn {
    explicit Turns(std::deque<Nap>& all) : naps(all) {}
    Work* unfinished() noexcept override {
      while (next < naps.size() && naps[next].done()) ++next;
      return next < naps.size() ? &naps[next] : nullptr;
    }
    std::deque<Nap>& naps;
    std::size_t next = 0;
  } turns(naps);
  EXPECT_TRUE(lane.wait_all(turns));
  EXPECT_EQ(count, 20);
  naps.emplace_back(lane, 1h, count);
  lane.start(naps.back());
  EXPECT_FALSE(lane.wait_all(turns, 1ms));
  EXPECT_EQ(turns.next, 20u);
  const Rouser rouser(lane, naps.back());
  EXPECT_TRUE(lane.wait_all(turns, 60s));
}

TEST(LaneWaits, WaitsForAnyOfSeveral) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "test");
  long count = 0;
  Nap slow(lane, 1h, count);
  Nap quick(lane, 1h, count);
  lane.start(slow);
  lane.start(quick);
  Work* const works[] = {&slow, &quick};
  EXPECT_FALSE(lane.wait_any(works, 0ms));
  {
    const Rouser rouser(lane, quick);
    EXPECT_TRUE(lane.wait_any(works));
  }
  EXPECT_TRUE(quick.done());
  Work* const rest[] = {&slow};
  EXPECT_FALSE(lane.wait_any(rest, 1ms));
  const Rouser rouser(lane, slow);
  EXPECT_TRUE(lane.wait_any(rest));
  EXPECT_EQ(count, 2);
}

TEST(LaneWaits, WaitGivesUpAfterItsTimeoutDrivingOrAsleep) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  Nap slow(lane, 1h, count);
  lane.start(slow);
  EXPECT_FALSE(lane.wait(slow, 0ns));
  EXPECT_FALSE(lane.wait(slow, 1ms));
  const Rouser rouser(lane, slow);
  EXPECT_TRUE(lane.wait(slow, 60s));
  EXPECT_TRUE(lane.wait(slow));
  EXPECT_EQ(count, 1);
}

// A first thread that is not let run for long drives both naps.
TEST(LaneWaits, SleeperTakesOverWhenTheDriverLeaves) {
  std::thread::id driver;
  for (int attempt = 0; attempt < kAttempts && driver != std::this_thread::get_id(); ++attempt) {
    BlockingLoop loop;
    Lane lane(loop, &loop, "t");
    long count = 0;
    std::atomic<bool> driving{false};
    std::thread first([&] {
      Nap nap(lane, 20ms, count);
      Lane::Hold hold(lane);
      driving = true;
      ASSERT_TRUE(hold.owns());
      hold.run(nap);
    });
    while (!driving) std::this_thread::yield();
    Nap longer(lane, 60ms, count);
    lane.run(longer);
    driver = loop.driver();
    first.join();
    EXPECT_EQ(count, 2);
    EXPECT_FALSE(lane.helper_started());
  }
  EXPECT_EQ(driver, std::this_thread::get_id());
}

}  // namespace
}  // namespace aiacc

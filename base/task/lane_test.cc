// Which thread drives a lane, and that no wake-up is lost. Also run with the thread sanitizer.
#include "base/task/lane.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/task/lane_fixture_test.h"
#include "base/task/test_loop.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using lane_test::BlockingLoop;
using lane_test::kAttempts;
using lane_test::Nap;

TEST(Lane, BlockingCallDrivesInlineWithoutHelper) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  Nap immediate(lane, Duration::zero(), count);
  lane.run(immediate);
  EXPECT_EQ(loop.turns(), 0) << "work that ends in begin() needs no turn";
  Nap nap(lane, 2ms, count);
  lane.run(nap);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(nap.begun_by, std::this_thread::get_id());
  EXPECT_FALSE(lane.helper_started());
}

TEST(Lane, AsynchronousWorkEndsThoughNobodyCalls) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  Nap nap(lane, 2ms, count);
  lane.start(nap);
  EXPECT_TRUE(lane.helper_started());
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (!nap.done()) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit);
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(nap.begun_by, std::this_thread::get_id()) << "it begins where it is started";
  EXPECT_NE(loop.driver(), std::this_thread::get_id());
  EXPECT_EQ(count, 1);
  EXPECT_GE(lane.helped(), 1u);
}

class AtOnce final : public Work {
  void begin() noexcept override { finish(); }
};

// Calls that end as they begin take the lane and never run the loop: what was started before is the helper's all the same.
TEST(Lane, CallsThatEndAtOnceDoNotKeepTheHelperAway) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  Nap nap(lane, 2ms, count);
  lane.start(nap);
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (!nap.done()) {
    AtOnce work;
    lane.run(work);
    ASSERT_LT(std::chrono::steady_clock::now(), limit);
  }
  EXPECT_GE(lane.helped(), 1u);
}

// A caller that waits for what it starts needs no helper: the helper looks on from time to time, and nobody wakes it.
TEST(Lane, NoStartWakesTheHelperForWhatTheCallerFinishes) {
  std::uint64_t calls = 0;
  std::uint64_t helped = 0;
  constexpr std::uint64_t kRounds = 2000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    BlockingLoop loop;
    Lane lane(loop, &loop, "t");
    long count = 0;
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      Nap nap(lane, 1us, count);
      lane.start(nap);
      lane.wait(nap);
    }
    EXPECT_EQ(count, long{kRounds});
    calls = lane.helper_calls();
    helped = lane.helped();
    if (calls <= kRounds / 100 && helped <= kRounds / 10) break;
  }
  EXPECT_LE(calls, kRounds / 100) << "it sleeps only after some 60 ms without work";
  EXPECT_LE(helped, kRounds / 10) << "it takes the lane only after nobody has driven for 500 us";
}

TEST(Lane, ATestDrivesWhatItAsksFor) {
  std::uint64_t calls = 0;
  int looks = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    BlockingLoop loop;
    Lane lane(loop, &loop, "t");
    long count = 0;
    for (int i = 0; i < 200; ++i) {
      Nap nap(lane, 10us, count);
      lane.start(nap);
      while (!lane.test(nap)) {
      }
    }
    EXPECT_EQ(count, 200);
    calls = lane.helper_calls();
    looks = loop.looks();
    if (calls <= 2 && looks >= 200) break;
  }
  EXPECT_LE(calls, 2u);
  EXPECT_GE(looks, 200);
}

// The helper listens without the token: a caller takes the lane at once, and what it leaves behind is the helper's again.
TEST(Lane, TheHelperGoesOnWithWhatACallerLeavesBehind) {
  std::thread::id begun_by;
  for (int attempt = 0; attempt < kAttempts && begun_by != std::this_thread::get_id(); ++attempt) {
    BlockingLoop loop;
    Lane lane(loop, &loop, "t");
    long count = 0;
    Nap background(lane, 60ms, count);
    lane.start(background);
    const auto limit = std::chrono::steady_clock::now() + 60s;
    const auto before = [&] { return std::chrono::steady_clock::now() < limit; };
    while (lane.helped() == 0 && before()) std::this_thread::sleep_for(1ms);
    Nap call(lane, 0us, count);
    lane.run(call);
    begun_by = call.begun_by;
    while (!background.done() && before()) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(count, 2);
  }
  EXPECT_EQ(begun_by, std::this_thread::get_id());
}

TEST(Lane, TheHelperHandsTheLaneToCallersAndTakesItBack) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "test");
  long count = 0;
  Nap background(lane, 300ms, count);
  lane.start(background);
  int driven_here = 0;
  for (int i = 0; i < 200; ++i) {
    Nap call(lane, i % 10 == 0 ? 100us : 0us, count);
    lane.run(call);
    driven_here += call.begun_by == std::this_thread::get_id() ? 1 : 0;
  }
  EXPECT_GT(driven_here, 0) << "some wait asleep where the helper gets no core";
  EXPECT_TRUE(lane.wait(background)) << "the helper, or this thread, goes on with it";
  EXPECT_EQ(count, 201);
}

// Work that is started while the helper waits for the lane begins when the helper has it back.
TEST(Lane, TheHelperBeginsWhatCameWhileACallerHadTheLane) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "test");
  struct Outstanding final : Work {
    void begin() noexcept override {}
    void end() noexcept { finish(); }
  } background;
  struct End final : Work {
    explicit End(Outstanding& what) : outstanding(what) {}
    void begin() noexcept override {
      outstanding.end();
      finish();
    }
    Outstanding& outstanding;
  } end(background);
  lane.start(background);
  long count = 0;
  for (int i = 0; i < 300; ++i) {
    Nap call(lane, 0us, count);
    Nap started(lane, 0us, count);
    lane.run(call);
    lane.start(started);
    const auto limit = std::chrono::steady_clock::now() + 10s;
    while (!started.done() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    ASSERT_TRUE(started.done()) << "call " << i;
  }
  lane.run(end);
  EXPECT_TRUE(background.done());
}

TEST(Lane, OrderOfSubmissionIsOrderOfBeginning) {
  TestLoop loop;
  Lane lane(loop, nullptr, "t");
  struct Note final : Work {
    std::vector<int>* order = nullptr;
    int number = 0;
    void begin() noexcept override {
      order->push_back(number);
      finish();
    }
  };
  std::vector<int> order;
  Note notes[5];
  for (int i = 0; i < 5; ++i) {
    notes[i].order = &order;
    notes[i].number = i;
    lane.start(notes[i]);
  }
  EXPECT_TRUE(order.empty()) << "a lane driven from outside begins work when its loop runs";
  while (loop.turn()) {
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_THROW(lane.run(notes[0]), Error);
}

TEST(Lane, ManyThreadsSubmittingLoseNoWakeUp) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  constexpr int kThreads = 8;
  constexpr int kRounds = 400;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const Duration nap = (i + t) % 7 == 0 ? Duration(20us) : Duration::zero();
        Nap work(lane, nap, count);
        switch ((i + t) % 3) {
          case 0: lane.run(work); break;
          case 1:
            lane.start(work);
            lane.wait(work);
            break;
          default:
            lane.start(work);
            while (!lane.wait(work, 10us)) {
            }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, long{kThreads} * kRounds);
}

TEST(Lane, ManyLanesComeAndGo) {
  for (int i = 0; i < 50; ++i) {
    BlockingLoop loop;
    Lane lane(loop, &loop, "t");
    long count = 0;
    Nap a(lane, 0ns, count);
    Nap b(lane, 10us, count);
    lane.start(a);
    lane.start(b);
    lane.wait(b);
    lane.wait(a);
    ASSERT_EQ(count, 2);
  }
}

}  // namespace
}  // namespace aiacc

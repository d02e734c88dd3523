// The window of a sender: what single periods do to it, and what senders do to each other and to a line. The bounds are exact figures of
// the model; none depends on a clock.
#include "transports/qos/delay_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <vector>

#include "base/sim/random.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;

constexpr double kLine = 125e6;  // 1 Gbit/s
constexpr Duration kRtt = 1ms;
constexpr Duration kLimit = 1ms;
constexpr double kChunk = 64 << 10;

// --- single periods --------------------------------------------------------------------------------------------------------

// A connection whose line delivers as fast as a test says.
struct Flow {
  DelayWindow window{kLimit};
  io::FlowState state{0, 0, kRtt};
  Instant now{};

  // Writes what it may.
  std::uint64_t write() {
    const std::uint64_t room = window.room(state, now);
    state.held += room;
    return room;
  }
  void deliver(std::uint64_t bytes, Duration time) {
    bytes = std::min(bytes, state.held);
    state.held -= bytes;
    state.acknowledged += bytes;
    now = after(now, time);
  }
  // A period of 2 ms in which so much is delivered; the window is full all the time.
  void period(std::uint64_t bytes) {
    while (write() > 0) {
    }
    for (int i = 0; i < 8; ++i) {
      deliver(bytes / 8, 250us);
      while (write() > 0) {
      }
    }
  }
};

TEST(DelayWindow, LetsItsFirstBytesGoAtOnceAndNoMore) {
  Flow flow;
  std::uint64_t written = 0;
  while (const std::uint64_t room = flow.write()) written += room;
  EXPECT_LE(written, DelayWindow::kFirst);
  EXPECT_GT(written, DelayWindow::kFirst * 3 / 4);
  EXPECT_GT(flow.window.pause(), Duration{});
}

// What was written without a window is under way when it begins.
TEST(DelayWindow, BeginsWithWhatIsUnderWayAndTakesItDown) {
  Flow flow;
  flow.state.held = 4 << 20;
  flow.window = DelayWindow(kLimit, flow.state.held);
  EXPECT_EQ(flow.window.bytes(), 4u << 20);
  for (int i = 0; i < 60; ++i) flow.period(250'000);
  EXPECT_LE(flow.state.held, 300'000u);
  EXPECT_EQ(DelayWindow(kLimit, 10).bytes(), DelayWindow::kFirst);
}

// Acknowledgements that come in a lump, as from a busy peer, say nothing of the rate.
TEST(DelayWindow, AddsNothingToWhatIsUnderWayUntilTheRateIsKnown) {
  Flow flow;
  flow.state.held = 4 << 20;
  flow.window = DelayWindow(kLimit, flow.state.held);
  EXPECT_EQ(flow.write(), 0u);
  flow.deliver(3 << 20, 500us);
  EXPECT_EQ(flow.write(), 0u);
  EXPECT_EQ(flow.window.bytes(), 1u << 20);
  for (int i = 0; i < 20; ++i) flow.period(250'000);
  EXPECT_LE(flow.state.held, 300'000u);
  EXPECT_GT(flow.window.bytes(), 250'000u);
}

// A sender that always has 700 KB on its way and then waits for the peer, so that a window of megabytes, of when the line was faster, holds nothing back.
TEST(DelayWindow, ComesDownToAQueueThatStandsThoughItHeldNothingBack) {
  Flow flow;
  for (int i = 0; i < 40; ++i) flow.period(2'000'000);
  ASSERT_GT(flow.window.bytes(), 1'000'000u);
  flow.window.idle();
  for (int i = 0; i < 200; ++i) {
    flow.deliver(62'500, 500us);
    for (std::uint64_t left = 700'000 - std::min<std::uint64_t>(700'000, flow.state.held); left > 0;) {
      const std::uint64_t room = std::min(left, flow.window.room(flow.state, flow.now));
      if (room == 0) break;
      flow.state.held += room;
      left -= room;
    }
    flow.window.idle();
  }
  EXPECT_LE(flow.state.held, 300'000u);
}

// One that has little to write keeps its window.
TEST(DelayWindow, StaysWhereNothingQueues) {
  Flow flow;
  for (int i = 0; i < 40; ++i) flow.period(250'000);
  const std::uint64_t before = flow.window.bytes();
  for (int i = 0; i < 200; ++i) {
    flow.state.held += std::min<std::uint64_t>(20'000, flow.window.room(flow.state, flow.now));
    flow.window.idle();
    flow.deliver(flow.state.held, 5ms);
  }
  EXPECT_EQ(flow.window.bytes(), before);
}

TEST(DelayWindow, AQuarterOfItsQueueIsGoneBeforeItWritesMore) {
  Flow flow;
  while (flow.write() > 0) {
  }
  flow.deliver(DelayWindow::kFirst / 16, 10us);
  EXPECT_EQ(flow.write(), 0u);
  flow.deliver(DelayWindow::kFirst / 16, 10us);
  EXPECT_GT(flow.write(), 0u);
}

TEST(DelayWindow, DoublesWhereNothingQueues) {
  Flow flow;
  std::uint64_t bytes = DelayWindow::kFirst;
  for (int i = 0; i < 6; ++i) {
    flow.period(2 * bytes);  // a window each round trip
    EXPECT_EQ(flow.window.bytes(), bytes *= 2);
  }
}

TEST(DelayWindow, IsWhatTheLineHoldsWithTheLimitsQueue) {
  Flow flow;
  for (int i = 0; i < 30; ++i) flow.period(40'000);
  const double wanted = 40'000 / 2e-3 * 2e-3, bytes = static_cast<double>(flow.window.bytes());
  EXPECT_NEAR(bytes, wanted + std::sqrt(DelayWindow::kStep * bytes), 100);
}

TEST(DelayWindow, IsHalvedAtMostAndNeverBelowItsLeast) {
  Flow flow;
  for (int i = 0; i < 30; ++i) flow.period(400'000);
  const std::uint64_t bytes = flow.window.bytes();
  flow.period(8'000);
  EXPECT_GE(flow.window.bytes(), bytes / 2);
  for (int i = 0; i < 60; ++i) flow.period(8);
  EXPECT_EQ(flow.window.bytes(), DelayWindow::kLeast);
}

TEST(DelayWindow, IsNotLoweredWhereTheSenderWasSlow) {
  Flow flow;
  for (int i = 0; i < 30; ++i) flow.period(400'000);
  const std::uint64_t bytes = flow.window.bytes();
  for (int i = 0; i < 20; ++i) {
    while (flow.write() > 0) {
    }
    flow.deliver(bytes, 20ms);  // all of it, long before the sender looks
  }
  EXPECT_GE(flow.window.bytes(), bytes);
}

// Messages that are over before a period is: each fills the window once.
TEST(DelayWindow, GrowsBetweenShortMessagesToo) {
  Flow flow;
  for (int i = 0; i < 200; ++i) {
    while (flow.write() > 0) {
    }
    flow.deliver(flow.window.bytes() * 3 / 4, 200us);
    flow.write();
    flow.window.idle();
    flow.deliver(flow.state.held, 20ms);
  }
  EXPECT_GE(flow.window.bytes(), 4 * DelayWindow::kFirst);
}

TEST(DelayWindow, AnIdleTimeIsNoPartOfAPeriod) {
  Flow flow;
  for (int i = 0; i < 30; ++i) flow.period(400'000);
  const std::uint64_t bytes = flow.window.bytes();
  for (int i = 0; i < 20; ++i) {
    flow.window.idle();
    flow.deliver(flow.state.held, 1s);
    flow.period(400'000);
  }
  EXPECT_NEAR(static_cast<double>(flow.window.bytes()), static_cast<double>(bytes), 0.1 * static_cast<double>(bytes));
}

TEST(DelayWindow, APeerThatDoesNotReadIsLookedAtSeldom) {
  Flow flow;
  for (int i = 0; i < 10; ++i) flow.period(kLine / 500);
  EXPECT_LT(flow.window.pause(), 1ms);
  for (Duration still{}; still < 9ms; still += 500us) {
    flow.deliver(0, 500us);
    flow.write();
  }
  EXPECT_LT(flow.window.pause(), 1ms);
  flow.deliver(0, 2ms);
  flow.write();
  EXPECT_EQ(flow.window.pause(), 5ms);
  flow.deliver(100'000, 500us);
  flow.write();
  EXPECT_LT(flow.window.pause(), 1ms);
}

// One period in which acknowledgements are late is no reason to look late itself.
TEST(DelayWindow, LooksAgainSoonAfterAPeriodWithoutAcknowledgements) {
  Flow flow;
  for (int i = 0; i < 30; ++i) flow.period(kLine / 500);
  const Duration usual = flow.window.pause();
  flow.period(800);
  EXPECT_LE(flow.window.pause(), 2 * usual);
}

TEST(DelayWindow, WithoutAcknowledgementsItNeverRises) {
  sim::Random random(1);
  for (int round = 0; round < 200; ++round) {
    Flow flow;
    for (int i = 0; i < 10; ++i) flow.period(random.below(1'000'000));
    for (int i = 0; i < 100; ++i) {
      const std::uint64_t bytes = flow.window.bytes();
      flow.write();
      flow.now = after(flow.now, Duration(static_cast<std::int64_t>(random.below(10'000'000))));
      if (random.below(10) == 0) flow.window.idle();
      if (i == 0) continue;  // what was acknowledged before
      EXPECT_LE(flow.window.bytes(), bytes);
    }
  }
}

// --- senders that share a line ---------------------------------------------------------------------------------------------

// A FIFO queue and a line behind it, in steps of 20 us. A sender looks when its window says so, and `late` after that.
class Line {
 public:
  struct Sender {
    explicit Sender(Duration its_late) : late(its_late) {}
    DelayWindow window{kLimit};
    Duration late;
    double held = 0, acknowledged = 0, delivered = 0;
    Instant looks{};
    bool feedback = true;
  };

  Sender& add(Duration late = {}) {
    Sender& added = *senders_.emplace_back(std::make_unique<Sender>(late));
    added.looks = now_;
    return added;
  }

  template <class Look>
  void run(Duration time, const Look& look) {
    for (const Instant end = now_ + time; now_ < end;) {
      step();
      look();
    }
  }
  void run(Duration time) {
    run(time, [] {});
  }

  Duration wait() const { return Duration(std::llround(queued_ / capacity * 1e9)); }
  double queued() const { return queued_; }

  double capacity = kLine;

 private:
  static constexpr Duration kStep = 20us;
  struct Batch {
    Sender* sender;
    double bytes;
    Instant at;
  };

  void step() {
    now_ += kStep;
    for (; !answers_.empty() && answers_.front().at <= now_; answers_.pop_front()) {
      Sender& sender = *answers_.front().sender;
      sender.delivered += answers_.front().bytes;
      if (!sender.feedback) continue;
      sender.held -= answers_.front().bytes;
      sender.acknowledged += answers_.front().bytes;
    }
    for (const auto& each : senders_) {
      if (each->looks <= now_) send(*each);
    }
    for (double left = capacity * seconds(kStep); left > 0 && !queue_.empty();) {
      Batch& batch = queue_.front();
      const double part = std::min(left, batch.bytes);
      answers_.push_back({batch.sender, part, now_ + kRtt});
      batch.bytes -= part;
      queued_ -= part;
      left -= part;
      if (batch.bytes < 1e-6) queue_.pop_front();
    }
  }

  void send(Sender& sender) {
    const io::FlowState state{static_cast<std::uint64_t>(sender.acknowledged),
                              static_cast<std::uint64_t>(std::max(0.0, sender.held)), kRtt};
    const auto room = static_cast<double>(sender.window.room(state, now_));
    if (room > 0) {
      sender.held += room;
      queued_ += room;
      queue_.push_back({&sender, room, now_});
    } else {
      sender.looks = now_ + sender.window.pause() + sender.late;
    }
  }

  Instant now_{};
  double queued_ = 0;
  std::deque<Batch> queue_, answers_;
  std::vector<std::unique_ptr<Sender>> senders_;
};

constexpr Duration kPeriod = kRtt + kLimit;

// What each had in `time`, of what all had; last what all had of the line.
std::vector<double> parts(Line& line, const std::vector<Line::Sender*>& senders, Duration time) {
  std::vector<double> had;
  double all = 0;
  for (const Line::Sender* each : senders) had.push_back(-each->delivered);
  line.run(time);
  for (std::size_t i = 0; i < senders.size(); ++i) all += had[i] += senders[i]->delivered;
  for (double& each : had) each /= all;
  had.push_back(all / (line.capacity * seconds(time)));
  return had;
}

// The second begins when the first has had the line for long.
TEST(SharedLine, TwoEqualSendersHaveHalfEachWithin50Periods) {
  Line line;
  Line::Sender& first = line.add();
  line.run(1s);
  Line::Sender& second = line.add();
  line.run(50 * kPeriod);
  const std::vector<double> had = parts(line, {&first, &second}, 1s);
  EXPECT_NEAR(had[0], 0.5, 0.05);
  EXPECT_GE(had[2], 0.95);
}

// An idle line takes its round trip.
TEST(SharedLine, ShortMessagesBesideBulkTakeAtMostTwiceAsLongAndAChunk) {
  for (const int senders : {1, 2, 4}) {
    Line line;
    for (int i = 0; i < senders; ++i) line.add();
    std::vector<Duration> took;
    line.run(4s, [&] { took.push_back(kRtt + line.wait()); });
    std::sort(took.begin(), took.end());
    const Duration chunk(static_cast<std::int64_t>(kChunk / kLine * 1e9));
    EXPECT_LE(took[took.size() * 99 / 100], 2 * kRtt + chunk) << senders;
  }
}

// All begin at once.
TEST(SharedLine, SixteenToOneKeepTheLineBusyAndTheQueueShort) {
  Line line;
  std::vector<Line::Sender*> senders;
  for (int i = 0; i < 16; ++i) senders.push_back(&line.add());
  double longest = 0;
  line.run(1s, [&] { longest = std::max(longest, line.queued()); });
  EXPECT_LE(longest, 400e3) << "from the first byte: three times what one sender keeps there";
  const std::vector<double> had = parts(line, senders, 2s);
  EXPECT_GE(had.back(), 0.95);
  EXPECT_GE(*std::min_element(had.begin(), had.end() - 1), 1.0 / 16 / 2);
}

TEST(SharedLine, OneSenderHasNineTenthsOfTheLine) {
  for (const Duration late : {0us, 500us}) {
    Line line;
    Line::Sender& only = line.add(late);
    EXPECT_GE(parts(line, {&only}, 4s)[1], 0.9) << "from the first byte; late " << late.count();
  }
}

TEST(SharedLine, ASenderWithoutFeedbackStopsAndTheOtherHasTheLine) {
  Line line;
  Line::Sender& deaf = line.add();
  Line::Sender& other = line.add();
  line.run(1s);
  deaf.feedback = false;
  const std::uint64_t bytes = deaf.window.bytes();
  line.run(1s, [&] { ASSERT_LE(deaf.window.bytes(), bytes); });
  EXPECT_GE(parts(line, {&deaf, &other}, 1s)[1], 0.99);
}

// A tenth of the line is left, and comes back.
TEST(SharedLine, RecoversWithin20PeriodsFromATenthOfTheLine) {
  Line line;
  Line::Sender& only = line.add();
  line.run(1s);
  line.capacity = kLine / 10;
  line.run(20 * kPeriod);
  EXPECT_LE(line.wait(), 2 * kLimit);
  EXPECT_GE(parts(line, {&only}, 1s)[1], 0.9);
  line.capacity = kLine;
  line.run(20 * kPeriod);
  EXPECT_GE(parts(line, {&only}, 1s)[1], 0.9);
}

}  // namespace
}  // namespace aiacc

// The rate of a sender: what single epochs do to it, and what senders do to each other and to a line (link_model_test.h). The bounds are
// exact figures of the model; none depends on a clock.
#include "transports/qos/rate_controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/sim/random.h"
#include "transports/qos/link_model_test.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using line_model::LineSettings;
using line_model::LinkModel;
using Path = RateController::Path;
using Epoch = RateController::Epoch;

constexpr double kLine = 125e6;  // 1 Gbit/s
constexpr double kChunk = 64 << 10;
constexpr Path kPath = {kLine, 1, 500us, kLine};  // slack: a chunk's time on the line

// --- single epochs ---------------------------------------------------------------------------------------------------------

// An epoch in which a sender used `rate`, and all of it arrived.
Epoch used(double rate) {
  Epoch epoch;
  epoch.length = 2ms;
  epoch.sent = epoch.delivered = rate * 2e-3;
  epoch.rtt = epoch.least_rtt = 1ms;
  return epoch;
}

Epoch with(Epoch epoch, double Epoch::*what, double value) {
  epoch.*what = value;
  return epoch;
}

// One that was marked, and has half of this rate.
RateController limited(double delivered) {
  RateController controller;
  controller.epoch(used(delivered), kPath);
  controller.epoch(with(used(delivered), &Epoch::marked, 1), kPath);
  return controller;
}

TEST(RateController, LimitsNothingBeforeTheFirstCongestion) {
  RateController controller;
  for (int i = 0; i < 1000; ++i) controller.epoch(used(kLine), kPath);
  EXPECT_FALSE(controller.limits());
}

TEST(RateController, HalvesWhatWasDeliveredAtTheFirstMark) {
  RateController controller;
  controller.epoch(used(40e6), kPath);
  controller.epoch(with(used(40e6), &Epoch::marked, 0.5), kPath);
  EXPECT_DOUBLE_EQ(controller.rate(), 20e6) << "however few were marked: what is usual is not known yet";
  controller.epoch(with(used(20e6), &Epoch::marked, 0.5), kPath);
  EXPECT_DOUBLE_EQ(controller.rate(), 20e6) << "within a round trip of the cut";
  controller.epoch(with(used(20e6), &Epoch::marked, 0.5), kPath);
  const double alpha = ((1 * 15.0 + 0.5) / 16 * 15 + 0.5) / 16;
  EXPECT_DOUBLE_EQ(controller.alpha(), alpha);
  EXPECT_DOUBLE_EQ(controller.rate(), 20e6 * (1 - alpha / 2));
}

TEST(RateController, CutsByMarksPausesDelayAndLossEachByItsOwnAmount) {
  const auto after_calm = [](const Epoch& last) {
    RateController controller;
    for (int i = 0; i < 2; ++i) controller.epoch(used(40e6), kPath);
    controller.epoch(last, kPath);
    return controller.rate() / 40e6;
  };
  const auto later = [](const Epoch& last) {  // alpha is 0.01
    RateController controller = limited(40e6);
    Path narrow = kPath;
    narrow.most = 20e6;
    for (int i = 0; i < 72; ++i) controller.epoch(used(20e6), narrow);
    controller.epoch(last, narrow);
    return controller.rate() / 20e6;
  };
  const double alpha = std::pow(15.0 / 16, 73) + 0.1 / 16;
  EXPECT_NEAR(later(with(used(20e6), &Epoch::marked, 0.1)), 1 - alpha / 2, 1e-9);
  EXPECT_NEAR(later(with(used(20e6), &Epoch::paused, 0.1)), 1 - alpha / 2, 1e-9);
  EXPECT_EQ(later(with(used(20e6), &Epoch::paused, 0.02)), 1) << "a single burst";
  Epoch slow = used(40e6);
  slow.rtt = 2500us;  // the target is 2 ms
  EXPECT_NEAR(after_calm(slow), 1 - 0.8 * 0.2, 1e-9);
  slow.rtt = 100ms;
  EXPECT_DOUBLE_EQ(after_calm(slow), 0.5);
  slow.rtt = 2100us;
  EXPECT_EQ(after_calm(slow), RateController::kUnlimited) << "5 % above the target";
  EXPECT_NEAR(after_calm(with(used(40e6), &Epoch::lost, 0.005)), 0.85, 1e-9);
  EXPECT_NEAR(after_calm(with(used(40e6), &Epoch::lost, 0.2)), 0.7, 1e-9);
  EXPECT_EQ(after_calm(with(used(40e6), &Epoch::lost, 0.001)), RateController::kUnlimited);
}

TEST(RateController, RecoversFastThenGrowsSlowlyThenFaster) {
  RateController controller = limited(40e6);
  EXPECT_DOUBLE_EQ(controller.rate(), 20e6);
  double rate = 20e6, target = 37.5e6;
  for (int i = 1; i <= 12; ++i) {
    controller.epoch(used(rate), kPath);
    if (i > 3) target += 0.01 * kLine * (i > 8 ? 5 * (i - 8) : 1);
    rate = (rate + target) / 2;
    EXPECT_DOUBLE_EQ(controller.rate(), rate) << i;
  }
}

TEST(RateController, DoesNotGrowUnlessItsRateIsUsed) {
  RateController controller = limited(40e6);
  const double rate = controller.rate();
  controller.epoch(used(0.8 * rate), kPath);
  EXPECT_EQ(controller.rate(), rate);
  Epoch some = used(rate);
  some.sender_limited = true;
  controller.epoch(some, kPath);
  EXPECT_EQ(controller.rate(), rate);
  controller.epoch(used(rate), kPath);
  EXPECT_GT(controller.rate(), rate);
}

TEST(RateController, FallsToTheFloorAtATimeoutAndStaysWithinItsBounds) {
  RateController controller = limited(40e6);
  Epoch silent;
  silent.length = 20ms;
  silent.timed_out = true;
  controller.epoch(silent, kPath);
  EXPECT_EQ(controller.rate(), RateController::kLeast);
  Path narrow = kPath;
  narrow.most = 20e6;
  for (int i = 0; i < 1000; ++i) controller.epoch(used(controller.rate()), narrow);
  EXPECT_DOUBLE_EQ(controller.rate(), 20e6);
}

TEST(RateController, WithoutFeedbackItNeverRises) {
  sim::Random random(1);
  for (int round = 0; round < 200; ++round) {
    RateController controller = limited(1e6 + static_cast<double>(random.below(100'000'000)));
    for (int i = 0; i < 100; ++i) {
      const double rate = controller.rate();
      Epoch epoch = used(rate * static_cast<double>(random.below(300)) / 100);
      epoch.delivered = 0;
      epoch.marked = static_cast<double>(random.below(2));
      epoch.lost = static_cast<double>(random.below(2)) / 10;
      epoch.timed_out = random.below(20) == 0;
      if (random.below(10) == 0) epoch.length = Duration{};
      controller.epoch(epoch, kPath);
      EXPECT_LE(controller.rate(), rate);
    }
  }
}

// --- counters --------------------------------------------------------------------------------------------------------------

TcpCounters counted(std::uint64_t bytes, std::uint32_t segments, std::uint32_t marked) {
  TcpCounters counters;
  counters.sent_bytes = counters.acknowledged_bytes = bytes;
  counters.delivered = segments;
  counters.marked = marked;
  counters.rtt = 2ms;
  counters.least_rtt = 1ms;
  counters.busy = Duration(bytes);
  return counters;
}

TEST(TcpSignals, AddTheDifferencesOfAllConnections) {
  TcpSignals signals;
  TcpCounters now = counted(3'000'000, 2000, 100);
  now.sent_again_bytes = 20'000;
  now.exact_marks = true;
  EXPECT_TRUE(signals.add(counted(1'000'000, 1000, 0), now));
  EXPECT_TRUE(signals.add(counted(0, 0, 0), counted(2'000'000, 1000, 600)));
  const Epoch epoch = signals.over(2ms);
  EXPECT_EQ(epoch.sent, 4e6);
  EXPECT_EQ(epoch.delivered, 4e6);
  EXPECT_EQ(epoch.lost, 0.005);
  EXPECT_EQ(epoch.marked, 0.2) << "100 of 1000, and half of 600 of 1000: those were repeated";
  EXPECT_EQ(epoch.rtt, 2ms);
  EXPECT_EQ(epoch.least_rtt, 1ms);
  EXPECT_FALSE(epoch.sender_limited);
}

TEST(TcpSignals, CountersOf32BitsWrap) {
  TcpSignals signals;
  TcpCounters before = counted(0, 0xffffff00, 0xfffffff0), now = counted(1'000'000, 0x100, 0x10);
  now.exact_marks = true;
  EXPECT_TRUE(signals.add(before, now));
  EXPECT_EQ(signals.over(1ms).marked, 32.0 / 512);
}

TEST(TcpSignals, OldCountersAreRefused) {
  const TcpCounters before = counted(1'000'000, 1000, 10), now = counted(2'000'000, 2000, 20);
  TcpSignals signals;
  EXPECT_FALSE(signals.add(now, before));
  TcpCounters fewer = now;
  fewer.sent_again_bytes = 5;
  EXPECT_FALSE(signals.add(fewer, now));
  EXPECT_EQ(signals.over(1ms).delivered, 0) << "which raises no rate";
}

TEST(TcpSignals, KnowASenderThatIsLimitedByItself) {
  const auto limited_by_itself = [](Duration busy, Duration held) {
    TcpSignals signals;
    TcpCounters now = counted(1'000'000, 1000, 0);
    now.busy = busy;
    now.held_by_receiver = held;
    signals.add({}, now);
    return signals.over(10ms).sender_limited;
  };
  EXPECT_FALSE(limited_by_itself(9ms, 1ms));
  EXPECT_TRUE(limited_by_itself(7ms, 0ms));
  EXPECT_TRUE(limited_by_itself(10ms, 3ms));
}

TEST(RdmaSignals, AreFractionsOfWhatIsPossible) {
  RdmaSignals signals;
  signals.sent_bytes = 10'000'000;
  signals.completed_bytes = 9'000'000;
  signals.notifications = 200;
  signals.queue_pairs = 2;
  signals.lost_packets = 5;
  signals.paused = 1ms;
  const Epoch epoch = signals.over(10ms);
  EXPECT_EQ(epoch.marked, 0.5) << "of 200 in 10 ms for each of two";
  EXPECT_EQ(epoch.paused, 0.1);
  EXPECT_EQ(epoch.lost, 5 * 4096 / 1e7);
  EXPECT_EQ(epoch.delivered, 9e6);
  signals.notifications = 100'000;
  EXPECT_EQ(signals.over(10ms).marked, 1);
}

// --- senders that share a line ---------------------------------------------------------------------------------------------

// 1 Gbit/s, 1 ms: a line holds 125 KB.
LineSettings ecn() {
  LineSettings settings;
  settings.mark_from = 20e3;
  settings.mark_all = 80e3;
  return settings;
}
LineSettings no_ecn() { return {}; }
LineSettings lossless() {
  LineSettings settings = ecn();
  settings.pause_from = 400e3;
  settings.pause_until = 300e3;
  return settings;
}

struct Kind {
  const char* name;
  LineSettings (*line)();
  bool rdma;
  bool exact_marks;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class SharedLine : public ::testing::TestWithParam<Kind> {
 protected:
  LinkModel model_{GetParam().line()};

  LinkModel::Sender sender(double weight = 1) const {
    LinkModel::Sender one;
    one.rdma = GetParam().rdma;
    one.exact_marks = GetParam().exact_marks;
    one.path = kPath;
    one.path.weight = weight;
    return one;
  }
  // Of this sender, which are longer while the queue is.
  void run_epochs(const LinkModel::Sender& of, int count) {
    const double end = of.epochs + count;
    while (of.epochs < end) model_.run(LinkModel::kStep);
  }
  // What each had in `time`, of what all had.
  std::vector<double> parts(const std::vector<LinkModel::Sender*>& senders, Duration time) {
    std::vector<double> had;
    double all = 0;
    for (const LinkModel::Sender* each : senders) had.push_back(-each->delivered);
    model_.run(time);
    for (std::size_t i = 0; i < senders.size(); ++i) all += had[i] += senders[i]->delivered;
    for (double& each : had) each /= all;
    utilisation_ = all / (model_.line.capacity * seconds(time));
    return had;
  }
  double utilisation_ = 0;  // of the line, during the last parts()
};

// Property 1. The second begins when the first has had the line for long.
TEST_P(SharedLine, TwoEqualSendersHaveHalfEachWithin50Epochs) {
  LinkModel::Sender& first = model_.add(sender());
  run_epochs(first, 200);
  LinkModel::Sender& second = model_.add(sender());
  run_epochs(second, 50);
  const std::vector<double> had = parts({&first, &second}, 1s);
  EXPECT_NEAR(had[0], 0.5, 0.05);
  EXPECT_GE(utilisation_, 0.85);
}

// Property 2.
TEST_P(SharedLine, WeightsOfThreeToOneGiveThreeToOne) {
  LinkModel::Sender& heavy = model_.add(sender(1));
  LinkModel::Sender& light = model_.add(sender(1.0 / 3));
  run_epochs(heavy, 100);
  const std::vector<double> had = parts({&heavy, &light}, 4s);
  EXPECT_NEAR(had[0] / had[1], 3, 0.6);
  EXPECT_GE(utilisation_, 0.85);
}

// Property 3: an idle line takes its round trip.
TEST_P(SharedLine, ShortMessagesBesideBulkTakeAtMostTwiceAsLongAndAChunk) {
  run_epochs(model_.add(sender()), 20);
  std::vector<Duration> took;
  model_.run(2s, [&] { took.push_back(model_.line.rtt + model_.wait()); });
  std::sort(took.begin(), took.end());
  const Duration chunk(static_cast<std::int64_t>(kChunk / kLine * 1e9));
  EXPECT_LE(took[took.size() * 99 / 100], 2 * model_.line.rtt + chunk);
}

// Property 4: after the burst in which all begin at the speed of their devices.
TEST_P(SharedLine, SixteenToOneKeepTheLineBusyAndTheQueueShort) {
  std::vector<LinkModel::Sender*> senders;
  for (int i = 0; i < 16; ++i) senders.push_back(&model_.add(sender()));
  run_epochs(*senders[0], 50);
  const double dropped = model_.dropped();
  double longest = 0, sent = 0;
  for (const LinkModel::Sender* each : senders) sent -= each->sent;
  std::vector<double> had(16);
  for (std::size_t i = 0; i < 16; ++i) had[i] = -senders[i]->delivered;
  model_.run(2s, [&] { longest = std::max(longest, model_.queue()); });
  double goodput = 0;
  for (std::size_t i = 0; i < 16; ++i) goodput += had[i] += senders[i]->delivered;
  for (const LinkModel::Sender* each : senders) sent += each->sent;
  EXPECT_GE(goodput / (kLine * 2), 0.85);
  const bool told = model_.line.mark_all > 0;
  EXPECT_LE(longest, told ? 500e3 : 700e3) << "of 1 MB";
  EXPECT_LE(model_.dropped() - dropped, 0.001 * sent);
  EXPECT_GE(*std::min_element(had.begin(), had.end()), goodput / 16 / 2);
}

// Property 5.
TEST_P(SharedLine, OneSenderHasNineTenthsOfTheLine) {
  LinkModel::Sender fast = sender();
  fast.device = 2 * kLine;
  LinkModel::Sender& only = model_.add(fast);
  parts({&only}, 4s);
  EXPECT_TRUE(only.controller.limits());
  EXPECT_GE(utilisation_, 0.9) << "from the first byte";
}

// Property 6: the shares of latency, bulk and background when all three are to be controlled and have something to send all the time.
TEST_P(SharedLine, BackgroundHasThreePerCent) {
  LinkModel::Sender& latency = model_.add(sender(0.2 / 0.6));
  LinkModel::Sender& bulk = model_.add(sender(1));
  LinkModel::Sender& background = model_.add(sender(0.05 / 0.6));
  run_epochs(bulk, 100);
  const std::vector<double> had = parts({&latency, &bulk, &background}, 4s);
  EXPECT_GE(had[2], 0.03);
  EXPECT_GE(had[1], 0.5);
  EXPECT_GE(utilisation_, 0.85);
}

// Property 7, on a line: a sender whose counters are not looked at stays where it is, and the others have the rest.
TEST_P(SharedLine, LostFeedbackRaisesNothing) {
  LinkModel::Sender& deaf = model_.add(sender());
  LinkModel::Sender& other = model_.add(sender());
  run_epochs(deaf, 100);
  ASSERT_TRUE(deaf.controller.limits());
  deaf.feedback = false;
  const double rate = deaf.controller.rate();
  model_.run(2s, [&] { ASSERT_EQ(deaf.controller.rate(), rate); });
  EXPECT_GE(parts({&deaf, &other}, 1s)[1], 0.2);
}

// Property 8: a tenth of the line is left, and comes back.
TEST_P(SharedLine, RecoversWithin20EpochsFromATenthOfTheLine) {
  LinkModel::Sender& only = model_.add(sender());
  run_epochs(only, 100);
  model_.line.capacity = kLine / 10;
  run_epochs(only, 20);
  EXPECT_LE(only.controller.rate(), 2 * kLine / 10);
  parts({&only}, 1s);
  EXPECT_GE(utilisation_, 0.75) << "it still grows by steps of the line as it was";
  model_.line.capacity = kLine;
  run_epochs(only, 20);
  parts({&only}, 1s);
  EXPECT_GE(utilisation_, 0.9);
}

INSTANTIATE_TEST_SUITE_P(Lines, SharedLine,
                         ::testing::Values(Kind{"dctcp", ecn, false, true}, Kind{"classic_ecn", ecn, false, false},
                                           Kind{"no_ecn", no_ecn, false, true}, Kind{"rdma_ecn", ecn, true, true},
                                           Kind{"rdma_pfc", lossless, true, true}),
                         [](const auto& kind) { return std::string(kind.param.name); });

// Clouds limit each flow; nothing says so but loss.
TEST(PolicedSender, StaysNearItsLimitAndLosesLittle) {
  LinkModel model(no_ecn());
  LinkModel::Sender policed;
  policed.path = kPath;
  policed.policed = 30e6;
  LinkModel::Sender& only = model.add(policed);
  model.run(200ms);
  const double delivered = only.delivered, lost = only.lost, sent = only.sent;
  model.run(2s);
  EXPECT_GE((only.delivered - delivered) / (2 * 30e6), 0.85);
  EXPECT_LE((only.lost - lost) / (only.sent - sent), 0.02);
}

// A sender that has less to send than it may, beside one that takes the rest.
TEST(SmallSender, IsNotHeldBackByOneThatTakesTheRest) {
  LinkModel model(ecn());
  LinkModel::Sender one;
  one.path = kPath;
  model.add(one);
  one.wants = 10e6;
  LinkModel::Sender& small = model.add(one);
  model.run(200ms);
  const double delivered = small.delivered;
  model.run(1s);
  EXPECT_GE(small.delivered - delivered, 0.95 * 10e6);
}

}  // namespace
}  // namespace aiacc

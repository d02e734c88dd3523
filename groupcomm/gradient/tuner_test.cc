// The tuner against networks that the test knows: how good what it finds is, how many steps it takes, and when it looks again.
#include "groupcomm/gradient/tuner.h"

#include <gtest/gtest.h>

#include "groupcomm/gradient/tuner_world_test.h"

namespace aiacc::gradient::test {
namespace {

constexpr TunedSetting kStart{8 << 20, 4};
constexpr std::uint64_t kNetworks = 300;

// The share by which a step with what was found is longer than with the best of all settings.
double regret(const TunedRun& run) { return run.network.step(run.tuner.best()) / run.best_s() - 1; }

struct Found {
  std::uint64_t within_5_percent = 0;
  int most_passes = 0;
  double worst = 0;
};

Found find_in_all(double sigma, int alternatives = 0) {
  Found found;
  for (std::uint64_t seed = 0; seed < kNetworks; ++seed) {
    TunedRun run(random_network(seed, alternatives), kStart, seed + 7, sigma);
    found.most_passes = std::max(found.most_passes, run.search(200));
    found.within_5_percent += regret(run) <= 0.05;
    found.worst = std::max(found.worst, regret(run));
  }
  return found;
}

TEST(Tuner, IsWithinFivePercentOfTheBestAfterFiftySteps) {
  const Found found = find_in_all(0);
  EXPECT_EQ(found.within_5_percent, kNetworks);
  EXPECT_LE(found.most_passes, 50);
  EXPECT_LT(found.worst, 0.04);
}

TEST(Tuner, ChoosesAmongAlgorithmsWithinTheSameSteps) {
  for (const int alternatives : {1, 2}) {
    const Found exact = find_in_all(0, alternatives);
    EXPECT_EQ(exact.within_5_percent, kNetworks) << alternatives;
    EXPECT_LE(exact.most_passes, 50) << alternatives;
    const Found noisy = find_in_all(0.03, alternatives);
    EXPECT_GE(noisy.within_5_percent, kNetworks * 98 / 100) << alternatives;
    EXPECT_LE(noisy.most_passes, 50) << alternatives;
    EXPECT_LT(noisy.worst, 0.1) << alternatives;
  }
}

TEST(Tuner, IsNotMisledByNoiseAndStragglers) {
  const Found found = find_in_all(0.03);
  EXPECT_GE(found.within_5_percent, kNetworks * 98 / 100);
  EXPECT_LE(found.most_passes, 50);
  EXPECT_LT(found.worst, 0.1);
}

TEST(Tuner, KeepsItsStartWhereNothingIsToGain) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Network network = random_network(seed);
    network.bytes_a_second = 1e13;
    network.start_s = network.latency_s = 1e-9;
    network.interference = 0;
    TunedRun run(network, kStart, seed, 0);
    run.search(200);
    EXPECT_EQ(run.tuner.best(), kStart) << seed;
  }
}

TEST(Tuner, LooksAgainWhenTheNetworkChanges) {
  std::uint64_t changed = 0, good = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    TunedRun run(random_network(seed), kStart, seed + 7, 0.03);
    run.search(200);
    while (run.tuner.best_time() == Tuner::kUnknown) run.pass();
    const double before = run.network.step(run.tuner.best());
    run.network.bytes_a_second *= seed % 2 == 0 ? 0.33 : 3;
    const double after = run.network.step(run.tuner.best());
    if (std::max(after / before, before / after) < 1.2) continue;
    ++changed;
    int passes = 0;
    for (; run.tuner.settled() && passes < 200; ++passes) run.pass();
    EXPECT_LE(passes, 4 * Tuner::kWindow) << seed;
    EXPECT_LE(run.search(200), 50) << seed;
    good += regret(run) <= 0.05;
  }
  EXPECT_GE(changed, 50u);
  EXPECT_GE(good, changed * 95 / 100);
}

TEST(Tuner, DoesNotLookAgainForNoise) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    TunedRun run(random_network(seed), kStart, seed, 0.03);
    run.search(200);
    for (int pass = 0; pass < 20'000; ++pass) run.pass();
    EXPECT_EQ(run.tuner.searches(), 1u) << seed;
  }
}

// A load that comes and goes cannot make the tuner search without end.
TEST(Tuner, CostsNoMoreThanTwoPercentAfterItHasSettled) {
  std::uint64_t searches = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    TunedRun run(random_network(seed), kStart, seed, 0.03);
    const double fast = run.network.bytes_a_second;
    run.search(200);
    double lost = 0, all = 0;
    TunedSetting settled = run.tuner.best();
    for (int pass = 0; pass < 20'000; ++pass) {
      run.network.bytes_a_second = pass / 200 % 2 == 0 ? fast : fast / 4;
      const double spent = run.spent_s;
      run.pass();
      all += run.step(settled);
      if (run.tuner.settled()) {
        settled = run.tuner.best();
      } else {
        lost += std::max(0.0, run.spent_s - spent - run.step(settled));
      }
    }
    searches += run.tuner.searches();
    EXPECT_LT(lost, 0.02 * all) << seed;
  }
  EXPECT_GT(searches, 60u) << "the load is noticed";
}

TEST(Tuner, TakesWhatWasRememberedAndSearchesIfItIsNotTrueAnyMore) {
  const Network network = random_network(1);
  const TunedSetting remembered{2 << 20, 8};
  const std::int32_t time = Tuner::log_time(Duration(static_cast<std::int64_t>(network.step(remembered) * 1e9)));
  for (const bool changes : {false, true}) {
    TunedRun run(network, kStart, 3, 0);
    run.tuner.adopt(remembered, changes ? time + Tuner::kOctave / 2 : time);
    EXPECT_TRUE(run.tuner.settled());
    for (int pass = 0; pass < 3 * Tuner::kWindow; ++pass) run.pass();
    EXPECT_EQ(run.tuner.best() == remembered && run.tuner.settled(), !changes);
    EXPECT_EQ(run.tuner.searches(), changes ? 1u : 0u);
  }
}

TEST(Tuner, EndsItsSearchIfTimesAreNotKnown) {
  Tuner tuner(kStart, 100 << 20);
  for (int pass = 0; pass <= 150; ++pass) tuner.told(Tuner::kUnknown);
  EXPECT_TRUE(tuner.settled());
  EXPECT_EQ(tuner.best(), kStart);
}

TEST(Tuner, TriesNoMoreStreamsThanThereArePieces) {
  Tuner tuner(kStart, 1 << 20);
  for (int pass = 0; pass < 150 && !tuner.settled(); ++pass) {
    const TunedSetting tried = tuner.told(20 * Tuner::kOctave).setting;
    EXPECT_LE(tried.fusion_bytes, kStart.fusion_bytes);
    EXPECT_LE(tried.in_flight, 8);
  }
}

}  // namespace
}  // namespace aiacc::gradient::test

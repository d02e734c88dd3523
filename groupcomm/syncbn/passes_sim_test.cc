// Batch normalisation over simulated ranks, on one host and on several: as of the joined batch in one process, whoever is late;
// deaths at any moment; and ranks that disagree.
#include "groupcomm/syncbn/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim_programs.h"

namespace aiacc::syncbn {
namespace {

using sim::SimPrograms;
using std::chrono::microseconds;
using std::chrono::seconds;
using Doubles = std::vector<double>;
using Places = std::vector<std::uint32_t>;

constexpr std::size_t kPositions = 3;

Doubles drawn_normal(std::size_t n, double mean, double deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> draw(mean, deviation);
  Doubles values(n);
  for (double& value : values) value = draw(random);
  return values;
}

// The joined batch of all ranks. `samples` are those of each.
struct Joined {
  Joined(std::vector<std::size_t> samples_of, std::size_t channels_of, double mean = 0.5, double deviation = 2)
      : samples(std::move(samples_of)), channels(channels_of) {
    for (const std::size_t n : samples) all += n;
    x = drawn_normal(all * channels * kPositions, mean, deviation, 1);
    dy = drawn_normal(x.size(), 0.1, 1, 2);
    weight = drawn_normal(channels, 1, 0.3, 3);
    bias = drawn_normal(channels, 0, 0.3, 4);
  }
  std::size_t first(std::size_t rank) const {
    std::size_t before = 0;
    for (std::size_t r = 0; r < rank; ++r) before += samples[r];
    return before * channels * kPositions;
  }
  std::vector<std::size_t> samples;
  std::size_t channels;
  std::size_t all = 0;
  Doubles x, dy, weight, bias;
};

// One rank, with some of the joined batch.
struct Normalising {
  Normalising(const Joined& of, std::size_t first, std::size_t samples, std::size_t channels)
      : batch{samples, channels, kPositions, DType::kFloat64, Layout::kChannelsFirst},
        x(of.x.begin() + static_cast<std::ptrdiff_t>(first),
          of.x.begin() + static_cast<std::ptrdiff_t>(first + batch.elements())),
        dy(of.dy.begin() + static_cast<std::ptrdiff_t>(first),
           of.dy.begin() + static_cast<std::ptrdiff_t>(first + batch.elements())),
        y(batch.elements() + 1),
        dx(batch.elements() + 1),
        dweight(channels),
        dbias(channels),
        running_mean(channels, 0.25),
        running_variance(channels, 2.0),
        saved(Saved::size(channels)) {
    x.push_back(0);  // an empty batch has an address too
    dy.push_back(0);
    layer.weight = of.weight.data();
    layer.bias = of.bias.data();
    layer.running_mean = running_mean.data();
    layer.running_variance = running_variance.data();
  }

  template <class Exchange>
  void step(Exchange&& exchange) {
    passes.begin_forward(batch, x.data());
    exchange();
    passes.end_forward(batch, layer, x.data(), y.data(), saved.data());
    passes.begin_backward(batch, saved.data(), x.data(), dy.data(), dweight.data(), dbias.data());
    exchange();
    passes.end_backward(batch, layer.weight, saved.data(), x.data(), dy.data(), dx.data());
  }

  Batch batch;
  Layer layer;
  Doubles x, dy, y, dx, dweight, dbias, running_mean, running_variance, saved;
  std::vector<std::byte> message;
  Passes passes{"layers"};
};

struct Alone : Normalising {
  explicit Alone(const Joined& of) : Normalising(of, 0, of.all, of.channels) {
    step([] {});
  }
};

// Ranks that go through some steps. Rank r of them begins each after `late` of its own.
struct Together {
  Together(const Joined& of, const Places& hosts, std::uint64_t seed = 1) : programs(hosts, seed) {
    for (std::size_t rank = 0; rank < hosts.size(); ++rank)
      ranks.emplace_back(of, of.first(rank), of.samples[rank], of.channels);
  }
  Task<void> exchange(int rank) {
    Normalising& one = ranks[static_cast<std::size_t>(rank)];
    if (programs.job.size() == 1) co_return;
    one.message.resize(one.passes.message_bytes());
    const Buffer buffer = sim::buffer_over(one.message.data(), one.message.size());
    const Call call = one.passes.call();
    one.passes.write(one.message.data());
    try {
      co_await programs.call(rank, call, buffer, buffer);
    } catch (const Error& error) {
      throw one.passes.explained(error);
    }
    one.passes.read(one.message.data());
  }
  Task<void> steps(int rank, int count, Duration late) {
    Normalising& one = ranks[static_cast<std::size_t>(rank)];
    for (int step = 0; step < count; ++step) {
      co_await programs.sleep(rank, late);
      one.passes.begin_forward(one.batch, one.x.data());
      co_await exchange(rank);
      one.passes.end_forward(one.batch, one.layer, one.x.data(), one.y.data(), one.saved.data());
      one.passes.begin_backward(one.batch, one.saved.data(), one.x.data(), one.dy.data(), one.dweight.data(),
                                one.dbias.data());
      co_await exchange(rank);
      one.passes.end_backward(one.batch, one.layer.weight, one.saved.data(), one.x.data(), one.dy.data(),
                              one.dx.data());
    }
  }
  std::deque<Normalising> ranks;  // their memory outlives the job
  SimPrograms programs;
};

void expect_close(const char* what, const Doubles& have, const Doubles& want, std::size_t first, std::size_t n) {
  double largest = 1e-9, worst = 0;
  for (const double value : want) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < n; ++i) worst = std::max(worst, std::abs(have[i] - want[first + i]));
  EXPECT_LE(worst, 1e-12 * largest) << what;
}

// What a rank has after one step, beside one process with the joined batch.
void expect_equal(const Joined& of, const Normalising& one, const Alone& alone, std::size_t rank) {
  const std::size_t first = of.first(rank), n = one.batch.elements();
  expect_close("y", one.y, alone.y, first, n);
  expect_close("dx", one.dx, alone.dx, first, n);
  expect_close("running mean", one.running_mean, alone.running_mean, 0, of.channels);
  expect_close("running variance", one.running_variance, alone.running_variance, 0, of.channels);
}

const std::vector<Places> kPlacements = {{0},
                                         {0, 0},
                                         {0, 1},
                                         {0, 0, 0},
                                         {0, 1, 2},
                                         {0, 0, 1},
                                         {0, 0, 1, 1, 2, 2, 3, 3},
                                         {0, 0, 0, 0, 0, 0, 0, 0},
                                         {0, 1, 2, 3, 0, 1, 2, 3},
                                         {0, 0, 0, 0, 0, 1, 2, 3}};

std::vector<std::size_t> uneven(std::size_t ranks) {
  const std::vector<std::size_t> samples = {2, 0, 5, 1, 3, 4, 0, 2};  // some have nothing
  return {samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(ranks)};
}

// Even a message that is written twice.
TEST(SyncbnPasses, WriteTheMomentsOfABatchWithAFarMeanAndAnOutlier) {
  const Batch batch{1, 3, 10'000, DType::kFloat64, Layout::kChannelsFirst};
  Doubles x = drawn_normal(batch.elements(), 1e4, 1, 1);
  x[batch.positions] = 2e4;
  Moments moments;
  moments_of(batch, x.data(), moments);
  Passes passes("layers");
  passes.begin_forward(batch, x.data());
  std::vector<std::byte> want(passes.message_bytes()), have(want.size());
  Records(batch.channels, DType::kFloat64).write(moments, want.data());
  passes.call();
  for (int time = 0; time < 2; ++time) {
    passes.write(have.data());
    EXPECT_EQ(have, want) << time;
  }
}

TEST(SyncbnPasses, RefuseRecordsOfUnlikeCounts) {
  const Joined of({2}, 100);
  for (const bool in_place : {false, true}) {
    Normalising one(of, 0, 2, of.channels);
    one.passes.begin_forward(one.batch, one.x.data());
    one.message.resize(one.passes.message_bytes());
    const Call call = one.passes.call();
    one.passes.write(one.message.data());
    one.message[one.message.size() - call.reduction.user->record_bytes] ^= std::byte{1};
    const std::byte* const message = one.message.data();
    in_place ? one.passes.read({&message, 1}) : one.passes.read(message);
    try {
      one.passes.end_forward(one.batch, one.layer, one.x.data(), one.y.data(), one.saved.data());
      ADD_FAILURE() << "nothing was refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kProtocol) << error.message();
    }
  }
}

TEST(SyncbnSim, EqualsOneProcessWhereverRanksAreAndWhoeverIsLate) {
  for (const Places& hosts : kPlacements) {
    for (const std::size_t channels : {std::size_t{1}, std::size_t{70}, std::size_t{2048}}) {
      for (const int last : {-1, 0, static_cast<int>(hosts.size()) - 1}) {
        SCOPED_TRACE(std::to_string(hosts.size()) + " ranks, " + std::to_string(channels) +
                     " channels, late: " + std::to_string(last));
        const Joined of(uneven(hosts.size()), channels);
        const Alone alone(of);
        Together world(of, hosts);
        ASSERT_TRUE(world.programs.run([&](int rank) {
          return world.steps(rank, 1, rank == last ? Duration(seconds(3)) : microseconds(rank * 7));
        }));
        Doubles sum_weight(channels), sum_bias(channels);
        for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
          ASSERT_EQ(world.programs.error(static_cast<int>(rank)).message(), "") << rank;
          const Normalising& one = world.ranks[rank];
          expect_equal(of, one, alone, rank);
          EXPECT_EQ(one.saved, world.ranks[0].saved) << "the same bits on all ranks";
          EXPECT_EQ(one.running_variance, world.ranks[0].running_variance);
          for (std::size_t c = 0; c < channels; ++c) {
            sum_weight[c] += one.dweight[c];
            sum_bias[c] += one.dbias[c];
          }
        }
        expect_close("dweight", sum_weight, alone.dweight, 0, channels);
        expect_close("dbias", sum_bias, alone.dbias, 0, channels);
        EXPECT_LT(world.programs.job.elapsed(), last < 0 ? Duration(std::chrono::milliseconds(10)) : seconds(4));
      }
    }
  }
}

TEST(SyncbnSim, HoldsForMeansOfTenThousandDeviations) {
  for (const Places& hosts : {Places{0, 1, 1}, Places{0, 0, 0}}) {
    const Joined of({2, 3, 1}, 5, 1e4, 1);
    const Alone alone(of);
    Together world(of, hosts);
    ASSERT_TRUE(world.programs.run([&](int rank) { return world.steps(rank, 1, Duration(0)); }));
    for (std::size_t rank = 0; rank < 3; ++rank) {
      for (std::size_t c = 0; c < 5; ++c) EXPECT_NEAR(world.ranks[rank].saved[5 + c] / alone.saved[5 + c], 1, 1e-10);
    }
  }
}

// Whenever a rank dies, the others end: with its name, or, if they had all of it before, well and with the right result.
TEST(SyncbnSim, AnyMomentIsAMomentToDie) {
  for (const Places& hosts : {Places{0, 0, 0}, Places{0, 1, 2}, Places{0, 0, 1, 1}}) {
    const Joined of(uneven(hosts.size()), 70);
    std::uint64_t first = 0, events = 0;
    {
      Together world(of, hosts);
      first = world.programs.job.world.events();
      ASSERT_TRUE(world.programs.run([&](int rank) { return world.steps(rank, 3, microseconds(10)); }));
      events = world.programs.job.world.events();
    }
    const Alone alone(of);
    std::size_t told = 0;
    for (std::uint64_t event = first; event < events; event += 1 + (events - first) / 60) {
      SCOPED_TRACE("killed at event " + std::to_string(event));
      const int dead = static_cast<int>(event % hosts.size());
      Together world(of, hosts);
      world.programs.kill_at_event(event, dead);
      ASSERT_TRUE(world.programs.run([&](int rank) { return world.steps(rank, 3, microseconds(10)); }));
      EXPECT_LT(world.programs.job.elapsed(), seconds(1));
      for (int rank = 0; rank < world.programs.job.size(); ++rank) {
        if (rank == dead) continue;
        const Error error = world.programs.error(rank);
        if (error.code() == Code::kOk) {
          expect_close("y", world.ranks[static_cast<std::size_t>(rank)].y, alone.y,
                       of.first(static_cast<std::size_t>(rank)),
                       world.ranks[static_cast<std::size_t>(rank)].batch.elements());
          continue;
        }
        ++told;
        EXPECT_EQ(error.code(), Code::kPeerFailed) << error.message();
        EXPECT_EQ(error.peer(), dead) << error.message();
      }
    }
    EXPECT_GT(told, 20u);
  }
}

TEST(SyncbnSim, RanksThatDisagreeAreToldOnEveryRank) {
  for (const Places& hosts : {Places{0, 0, 0}, Places{0, 1, 2}, Places{0, 0, 1}}) {
    for (const std::size_t other :
         {std::size_t{64}, std::size_t{41}}) {  // messages of 41 and 42 channels are of equal length
      const Joined of({2, 2, 2}, 64);
      Together world(of, hosts);
      for (std::size_t rank = 0; rank < 3; ++rank) {
        world.ranks[rank].batch.channels = rank == 1 ? other : 42;  // of the same memory
      }
      ASSERT_TRUE(world.programs.run([&](int rank) { return world.steps(rank, 1, Duration(0)); }));
      for (int rank = 0; rank < 3; ++rank) {
        const Error error = world.programs.error(rank);
        EXPECT_EQ(error.code(), Code::kMismatch) << error.message();
        EXPECT_NE(error.message().find("SyncBN 'layers', forward over " + std::to_string(rank == 1 ? other : 42) +
                                       " channels here: "),
                  std::string::npos)
            << error.message();
      }
    }
  }
}

TEST(SyncbnSim, EmptyBatchesAreRefusedOnEveryRank) {
  const Joined of({0, 0, 0}, 4);
  Together world(of, {0, 0, 1});
  ASSERT_TRUE(world.programs.run([&](int rank) { return world.steps(rank, 1, Duration(0)); }));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(world.programs.error(rank).message(), "SyncBN 'layers': the batches of all ranks are empty");
    EXPECT_EQ(world.programs.error(rank).code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace aiacc::syncbn

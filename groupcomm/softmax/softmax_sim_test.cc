// The cross entropy of split classes over simulated ranks, on one host and on several: as of all classes in one process, whoever is
// late; deaths at any moment; ranks that disagree; and what a whole step sends.
#include "groupcomm/softmax/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim_programs.h"

namespace aiacc::softmax {
namespace {

using sim::SimPrograms;
using std::chrono::microseconds;
using std::chrono::seconds;
using Places = std::vector<std::uint32_t>;
using Labels = std::vector<std::int64_t>;

struct Logits {
  Logits(std::size_t rows_of, std::size_t classes_of, double spread, Labels given = {})
      : rows(rows_of), classes(classes_of), values(rows_of * classes_of), labels(std::move(given)) {
    std::mt19937 random(7);
    std::normal_distribution<double> draw(0, spread);
    for (double& value : values) value = draw(random);
    std::uniform_int_distribution<std::int64_t> any(0, static_cast<std::int64_t>(classes) - 1);
    while (labels.size() < rows) labels.push_back(any(random));
  }
  std::size_t rows, classes;
  std::vector<double> values;
  Labels labels;
};

// A rank's columns.
struct Columns {
  Columns(const Logits& of, std::size_t first, std::size_t count) : losses(of.rows) {
    shard.rows = of.rows;
    shard.classes = count;
    shard.first_class = static_cast<std::int64_t>(first);
    shard.type = DType::kFloat64;
    shard.factor = 1.0 / static_cast<double>(of.rows);
    for (std::size_t row = 0; row < of.rows; ++row) {
      for (std::size_t c = first; c < first + count; ++c) logits.push_back(of.values[row * of.classes + c]);
    }
    logits.push_back(0);  // no class has an address too
  }
  Shard shard;
  std::vector<double> logits, losses;
};

struct AllColumns : Columns {
  explicit AllColumns(const Logits& of, Shard like = {}) : Columns(of, 0, of.classes) {
    shard.margin = like.margin;
    shard.size = like.size;
    shard.scale = like.scale;
    const auto loss = Loss::begin(shard, logits.data(), of.labels.data(), losses.data());
    EXPECT_FALSE(loss->exchanges(1));
    loss->finish();
  }
};

// The first C mod n ranks have one class more.
struct Split {
  Split(const Logits& of, const Places& hosts, Shard like = {}) : given(of), programs(hosts) {
    const std::size_t n = hosts.size();
    for (std::size_t rank = 0, first = 0; rank < n; ++rank) {
      const std::size_t count = of.classes / n + (rank < of.classes % n ? 1 : 0);
      Columns& one = ranks.emplace_back(of, first, count);
      one.shard.margin = like.margin;
      one.shard.size = like.size;
      one.shard.scale = like.scale;
      first += count;
    }
  }
  Task<void> loss(int rank, Duration late) {
    Columns& one = ranks[static_cast<std::size_t>(rank)];
    co_await programs.sleep(rank, late);
    losses_begun.push_back(
        Loss::begin(one.shard, one.logits.data(), given.labels.data(), one.losses.data()));  // outlives a killed rank
    Loss& loss = *losses_begun.back();
    if (loss.exchanges(programs.job.size())) co_await programs.call(rank, loss.call(), loss.message(), loss.message());
    loss.finish();
  }
  const Logits& given;
  std::deque<Columns> ranks;
  std::deque<std::unique_ptr<Loss>> losses_begun;
  SimPrograms programs;
};

void expect_equal_to_one_process(const Split& split, const AllColumns& alone, std::size_t rank) {
  const Columns& one = split.ranks[rank];
  for (std::size_t row = 0; row < one.shard.rows; ++row) {
    EXPECT_NEAR(one.losses[row], alone.losses[row], 1e-12 * std::max(1.0, std::abs(alone.losses[row])));
    for (std::size_t c = 0; c < one.shard.classes; ++c) {
      const double want = alone.logits[row * split.given.classes + static_cast<std::size_t>(one.shard.first_class) + c];
      // Slopes of an arc margin are up to some 10^5 here: not all of the numbers are cosines.
      EXPECT_NEAR(one.logits[row * one.shard.classes + c], want, 1e-12 * std::max(1.0, std::abs(want)))
          << "row " << row << ", column " << c;
    }
  }
}

const std::vector<Places> kPlacesOfRanks = {{0},
                                            {0, 0},
                                            {0, 1},
                                            {0, 0, 0},
                                            {0, 1, 2},
                                            {0, 0, 0, 0, 0, 0, 0, 0},
                                            {0, 0, 1},
                                            {0, 1, 2, 3, 0, 1, 2, 3},
                                            {0, 0, 0, 1, 1, 2, 2, 3}};

TEST(SoftmaxSim, EqualsOneProcessWhereverRanksAreAndWhoeverIsLate) {
  Shard arc;
  arc.margin = Margin::kArc;
  arc.size = 0.5;
  arc.scale = 64;
  // Classes that do not divide, fewer of them than ranks, all labels on the first rank and on the last, and large logits.
  const std::vector<Logits> cases = {
      {9, 23, 1},   {9, 5, 1}, {9, 23, 1, Labels(9, 0)}, {9, 23, 1, Labels(9, 22)}, {9, 23, 1e4},
      {300, 23, 1}, {0, 23, 1}};
  for (const Places& hosts : kPlacesOfRanks) {
    for (const Logits& of : cases) {
      for (const int last : {-1, 0, static_cast<int>(hosts.size()) - 1}) {
        for (const Shard& like : {Shard{}, arc}) {
          SCOPED_TRACE(std::to_string(hosts.size()) + " ranks, " + std::to_string(of.classes) +
                       " classes, late: " + std::to_string(last));
          const AllColumns alone(of, like);
          Split split(of, hosts, like);
          ASSERT_TRUE(split.programs.run([&](int rank) {
            return split.loss(rank, rank == last ? Duration(seconds(3)) : microseconds(rank * 7));
          }));
          for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
            ASSERT_EQ(split.programs.error(static_cast<int>(rank)).message(), "");
            expect_equal_to_one_process(split, alone, rank);
            EXPECT_EQ(split.ranks[rank].losses, split.ranks[0].losses) << "the same bits on all ranks";
          }
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(SoftmaxSim, AnyMomentIsAMomentToDie) {
  const Logits of(40, 23, 1);
  const AllColumns alone(of);
  for (const Places& hosts : {Places{0, 0, 0}, Places{0, 1, 2}, Places{0, 0, 1, 1}}) {
    std::uint64_t first = 0, events = 0;
    {
      Split split(of, hosts);
      first = split.programs.job.world.events();
      ASSERT_TRUE(split.programs.run([&](int rank) { return split.loss(rank, microseconds(10)); }));
      events = split.programs.job.world.events();
    }
    std::size_t told = 0;
    for (std::uint64_t event = first; event < events; event += 1 + (events - first) / 60) {
      SCOPED_TRACE("killed at event " + std::to_string(event));
      const int dead = static_cast<int>(event % hosts.size());
      Split split(of, hosts);
      split.programs.kill_at_event(event, dead);
      ASSERT_TRUE(split.programs.run([&](int rank) { return split.loss(rank, microseconds(10)); }));
      EXPECT_LT(split.programs.job.elapsed(), seconds(1));
      for (int rank = 0; rank < split.programs.job.size(); ++rank) {
        if (rank == dead) continue;
        const Error error = split.programs.error(rank);
        if (error.code() == Code::kOk) {
          expect_equal_to_one_process(split, alone, static_cast<std::size_t>(rank));
          continue;
        }
        ++told;
        EXPECT_EQ(error.code(), Code::kPeerFailed) << error.message();
        EXPECT_EQ(error.peer(), dead) << error.message();
      }
    }
    EXPECT_GT(told, 10u);
  }
}

TEST(SoftmaxSim, AnotherNumberOfRowsIsToldOnEveryRank) {
  for (const Places& hosts : {Places{0, 0, 0}, Places{0, 1, 2}, Places{0, 0, 1}}) {
    const Logits of(9, 23, 1);
    Split split(of, hosts);
    split.ranks[1].shard.rows = 8;
    ASSERT_TRUE(split.programs.run([&](int rank) { return split.loss(rank, Duration(0)); }));
    for (int rank = 0; rank < 3; ++rank) {
      const Error error = split.programs.error(rank);
      EXPECT_EQ(error.code(), Code::kMismatch) << error.message();
      EXPECT_NE(error.message().find("softmax"), std::string::npos) << error.message();
    }
  }
}

// N rows of d features: every rank gets the features of the others and sends their gradients, and of each row three numbers are
// merged; the classes do not matter. Between n ranks an allgather or a reduce-scatter sends n - 1 times its N d floats in all, and
// each rank sends its short message of the merge once a round of recursive doubling.
TEST(SoftmaxSim, AStepSendsFeaturesTheirGradientsAndThreeNumbersOfARow) {
  for (const std::size_t n : {std::size_t{2}, std::size_t{4}, std::size_t{8}}) {
    constexpr std::size_t kEach = 64, kFeatures = 128;
    Places hosts;
    for (std::uint32_t host = 0; host < n; ++host) hosts.push_back(host);
    const std::size_t rows = kEach * n;
    const Logits of(rows, 10 * n, 1);
    Split split(of, hosts);
    for (Columns& one : split.ranks) one.shard.type = DType::kFloat32;
    std::deque<std::vector<float>> features, gradients, logits, shares;
    for (std::size_t rank = 0; rank < n; ++rank) {
      features.emplace_back(rows * kFeatures, 1.0f);
      gradients.emplace_back(rows * kFeatures, 1.0f);
      logits.emplace_back(rows * 10, 1.0f);
      shares.emplace_back(kEach * kFeatures);
    }
    const std::uint64_t before = split.programs.job.fabric->bytes();
    ASSERT_TRUE(split.programs.run([&](int rank) -> Task<void> {
      const auto at = static_cast<std::size_t>(rank);
      const std::size_t share = kEach * kFeatures * sizeof(float);
      Call call;
      call.kind = Collective::kAllgather;
      call.count = kEach * kFeatures;
      co_await split.programs.call(rank, call, sim::buffer_over(features[at].data() + at * call.count, share),
                                   sim::buffer_over(features[at].data(), n * share));
      Columns& one = split.ranks[at];
      split.losses_begun.push_back(Loss::begin(one.shard, logits[at].data(), of.labels.data(), one.losses.data()));
      Loss& loss = *split.losses_begun.back();
      co_await split.programs.call(rank, loss.call(), loss.message(), loss.message());
      loss.finish();
      call.kind = Collective::kReduceScatter;
      co_await split.programs.call(rank, call, sim::buffer_over(gradients[at].data(), n * share),
                                   sim::buffer_over(shares[at].data(), share));
    }));
    for (std::size_t rank = 0; rank < n; ++rank) {
      ASSERT_EQ(split.programs.error(static_cast<int>(rank)).message(), "");
      EXPECT_NEAR(split.ranks[rank].losses[0], std::log(10.0 * static_cast<double>(n)), 1e-6);
    }
    const std::uint64_t sent = split.programs.job.fabric->bytes() - before;
    const auto floats = [](std::size_t count) { return count * sizeof(float); };
    const auto rounds = static_cast<std::size_t>(std::countr_zero(n));  // of recursive doubling
    EXPECT_EQ(sent, floats(2 * (n - 1) * rows * kFeatures + n * rounds * 3 * rows));
  }
}

}  // namespace
}  // namespace aiacc::softmax

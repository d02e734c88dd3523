// The softmax over split classes through the C ABI: a whole classifier against one process in long double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "include/aiacc/softmax.h"
#include "tests/abi_world.h"

namespace aiacc {
namespace {

using test::expect;
using test::World;

struct Case {
  std::vector<std::size_t> batches;  // rows of each rank
  std::size_t classes = 23;
  std::size_t features = 5;
  int32_t kind = AIACC_MARGIN_NONE;
  double margin = 0;
  double scale = 1;
  double spread = 1;                      // of features
  std::vector<std::int64_t> labels = {};  // empty: drawn

  std::size_t rows() const {
    std::size_t sum = 0;
    for (const std::size_t n : batches) sum += n;
    return sum;
  }
};

using Reals = std::vector<long double>;

struct Inputs {
  std::vector<double> x, w;  // rows x features, classes x features; normalised rows where there is a margin
  std::vector<std::int64_t> labels;

  explicit Inputs(const Case& of) : x(of.rows() * of.features), w(of.classes * of.features), labels(of.labels) {
    std::mt19937 random(7);
    std::normal_distribution<double> draw(0, 1);
    const auto fill = [&](std::vector<double>& matrix, double spread) {
      for (double& value : matrix) value = draw(random) * spread;
      for (std::size_t row = 0; of.kind != AIACC_MARGIN_NONE && row < matrix.size(); row += of.features) {
        double norm = 0;
        for (std::size_t i = 0; i < of.features; ++i) norm += matrix[row + i] * matrix[row + i];
        for (std::size_t i = 0; i < of.features; ++i) matrix[row + i] /= std::sqrt(norm);
      }
    };
    fill(x, of.spread);
    fill(w, 1);
    std::uniform_int_distribution<std::int64_t> any(0, static_cast<std::int64_t>(of.classes) - 1);
    for (std::size_t i = 0; of.labels.empty() && i < of.rows(); ++i) labels.push_back(any(random));
  }
};

// A logit before its scale, as the ranks give it: rounded to the type that travels.
template <class T>
T logit_of(const Case& of, const double* x, const double* w) {
  double dot = 0;
  for (std::size_t i = 0; i < of.features; ++i) dot += x[i] * w[i];
  return static_cast<T>(dot);
}

// Losses, and the gradients of their mean in logits, x and w, as one process has them of the same logits.
struct Reference {
  Reals losses, dlogits, dx, dw;

  template <class T>
  Reference(const Case& of, const Inputs& in, T /*type of the logits*/) : dx(in.x.size()), dw(in.w.size()) {
    for (std::size_t row = 0; row < of.rows(); ++row) {
      Reals logits(of.classes), slopes(of.classes, of.scale);
      const auto own = static_cast<std::size_t>(in.labels[row]);
      for (std::size_t c = 0; c < of.classes; ++c) {
        const long double given = logit_of<T>(of, in.x.data() + row * of.features, in.w.data() + c * of.features);
        long double logit = given;
        if (c == own && of.kind == AIACC_MARGIN_COS) logit = given - of.margin;
        if (c == own && of.kind == AIACC_MARGIN_ARC) {
          const long double angle = std::acos(given);
          const bool beyond = angle + of.margin > M_PIl;
          logit = beyond ? given - of.margin * std::sin(of.margin) : std::cos(angle + of.margin);
          slopes[c] *= beyond ? 1 : std::sin(angle + of.margin) / std::sin(angle);
        }
        logits[c] = logit * of.scale;
      }
      const long double most = *std::max_element(logits.begin(), logits.end());
      long double sum = 0, others = 0;
      for (std::size_t c = 0; c < of.classes; ++c) {
        sum += std::exp(logits[c] - most);
        if (c != own) others += std::exp(logits[c] - logits[own]);
      }
      losses.push_back(std::log1p(others));
      if (std::isinf(others)) losses.back() = std::log(sum) + most - logits[own];
      for (std::size_t c = 0; c < of.classes; ++c) {
        const long double share =
            c == own ? (std::isinf(others) ? -1 : -others / (1 + others)) : std::exp(logits[c] - most) / sum;
        const long double gradient = share * slopes[c] / static_cast<long double>(of.rows());
        dlogits.push_back(gradient);
        for (std::size_t i = 0; i < of.features; ++i) {
          dx[row * of.features + i] += gradient * in.w[c * of.features + i];
          dw[c * of.features + i] += gradient * in.x[row * of.features + i];
        }
      }
    }
  }
};

// Relative to the largest.
template <class T>
void expect_near(const char* what, const T* have, const Reals& want, std::size_t first, std::size_t n,
                 double tolerance) {
  long double largest = 1e-3L;
  for (const long double value : want) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < n; ++i) {
    const auto off = static_cast<double>(std::abs(static_cast<long double>(have[i]) - want[first + i]));
    EXPECT_LE(off, tolerance * static_cast<double>(largest)) << what << " " << i;
    if (!(off <= tolerance * static_cast<double>(largest))) return;
  }
}

// Relative to each. With a margin, whose logits the library rounds in its own way, also what is left of the maximum's rounding.
void expect_each_near(const Case& of, const char* what, double have, long double want, double tolerance) {
  const auto off = static_cast<double>(std::abs(static_cast<long double>(have) - want));
  const double least = of.kind == AIACC_MARGIN_NONE ? 1e-35 : 1e-11;
  EXPECT_LE(off, tolerance * static_cast<double>(std::abs(want)) + least) << what << ", " << have;
}

aiacc_softmax_shard_t shard_of(const Case& of, aiacc_group_t group, aiacc_dtype_t dtype) {
  aiacc_softmax_shard_t shard = {};
  shard.size = sizeof shard;
  shard.rows = of.rows();
  shard.all_classes = of.classes;
  shard.dtype = dtype;
  shard.margin_kind = of.kind;
  shard.margin = of.margin;
  shard.scale = of.scale;
  EXPECT_AIACC(aiacc_softmax_split(of.classes, group, &shard.first_class, &shard.classes));
  return shard;
}

// A step of one rank: gather, product, loss, products, reduce-scatter. Logits of type T come from products in double, so that
// only the library rounds.
template <class T>
void step(const Case& of, const Inputs& in, const Reference& want, int rank, aiacc_group_t group, aiacc_dtype_t dtype,
          double tolerance) {
  const std::size_t n = of.rows(), d = of.features;
  std::vector<std::size_t> lengths;
  std::size_t first = 0;
  for (std::size_t r = 0; r < of.batches.size(); ++r) {
    lengths.push_back(of.batches[r] * d);
    if (r < static_cast<std::size_t>(rank)) first += lengths[r];
  }
  std::vector<double> x(n * d + 1), dx(n * d + 1), losses(n + 1);
  const std::size_t own = lengths[static_cast<std::size_t>(rank)];
  EXPECT_AIACC(aiacc_allgatherv(in.x.data() + first, own, x.data(), lengths.data(), nullptr, AIACC_FLOAT64, group,
                                nullptr, nullptr));
  const aiacc_softmax_shard_t shard = shard_of(of, group, dtype);
  const auto begin = static_cast<std::size_t>(shard.first_class);
  std::vector<T> logits(n * shard.classes + 1);
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t c = 0; c < shard.classes; ++c) {
      logits[row * shard.classes + c] = logit_of<T>(of, x.data() + row * d, in.w.data() + (begin + c) * d);
    }
  }
  EXPECT_AIACC(aiacc_softmax_loss(&shard, logits.data(), in.labels.data(), losses.data(), group, nullptr));
  std::vector<double> dw(shard.classes * d + 1);
  for (std::size_t row = 0; row < n; ++row) {
    expect_each_near(of, "loss", losses[row], want.losses[row], tolerance);
    for (std::size_t c = 0; c < shard.classes; ++c) {
      const auto gradient = static_cast<double>(logits[row * shard.classes + c]);
      expect_each_near(of, "gradient of a logit", gradient, want.dlogits[row * of.classes + begin + c], tolerance);
      for (std::size_t i = 0; i < d; ++i) {
        dx[row * d + i] += gradient * in.w[(begin + c) * d + i];
        dw[c * d + i] += gradient * x[row * d + i];
      }
    }
  }
  expect_near("dw", dw.data(), want.dw, begin * d, shard.classes * d, tolerance);
  std::vector<double> mine(own + 1);
  EXPECT_AIACC(
      aiacc_reduce_scatterv(dx.data(), mine.data(), lengths.data(), AIACC_FLOAT64, AIACC_SUM, group, nullptr, nullptr));
  expect_near("dx", mine.data(), want.dx, first, own, tolerance);
}

void check(const Case& of, double tolerance_of_fp64 = 1e-12) {
  SCOPED_TRACE(testing::Message() << of.batches.size() << " ranks, " << of.classes << " classes, margin kind "
                                  << of.kind);
  const World world(of.batches.size());
  const Inputs in(of);
  const Reference wide(of, in, double()), narrow(of, in, float());
  world.run([&](int rank, aiacc_group_t group) {
    step<double>(of, in, wide, rank, group, AIACC_FLOAT64, tolerance_of_fp64);
    step<float>(of, in, narrow, rank, group, AIACC_FLOAT32, 1e-6);
  });
}

const std::vector<std::vector<std::size_t>> kBatches = {{7}, {4, 4}, {3, 0, 5}, {1, 2, 3, 0, 1, 2, 3, 4}};

TEST(Softmax, EqualsOneProcess) {
  for (const auto& batches : kBatches) {
    Case of;
    of.batches = batches;
    check(of);
    of.classes = 5;  // fewer than 8 ranks: some have no class
    check(of);
  }
}

TEST(Softmax, EqualsOneProcessWithMargins) {
  for (const auto& batches : kBatches) {
    for (const int32_t kind : {AIACC_MARGIN_ARC, AIACC_MARGIN_COS}) {
      Case of;
      of.batches = batches;
      of.kind = kind;
      of.margin = kind == AIACC_MARGIN_ARC ? 0.5 : 0.35;
      of.scale = 64;
      check(of);
      of.margin = 1.5;  // beyond pi for some
      of.scale = 4;
      check(of);
    }
  }
}

TEST(Softmax, EqualsOneProcessWithAllLabelsOnOneRank) {
  for (const auto& batches : kBatches) {
    for (const std::int64_t label : {0, 22}) {
      for (const int32_t kind : {AIACC_MARGIN_NONE, AIACC_MARGIN_ARC, AIACC_MARGIN_COS}) {
        Case of;
        of.batches = batches;
        of.labels.assign(of.rows(), label);
        of.kind = kind;
        of.margin = 0.4;
        of.scale = kind == AIACC_MARGIN_NONE ? 1 : 64;
        check(of);
      }
    }
  }
}

// Rows that are all but certain of their class: their losses, of 1e-7 and less, keep their digits, and so do their gradients.
TEST(Softmax, EqualsOneProcessWhereLossesAreSmall) {
  for (const auto& batches : kBatches) {
    Case of;
    of.batches = batches;
    of.features = 24;
    Inputs in(of);
    for (std::size_t row = 0; row < of.rows(); ++row) {  // a feature for each class, and what the row is of
      for (std::size_t i = 0; i < of.features; ++i)
        in.x[row * of.features + i] = i == static_cast<std::size_t>(in.labels[row]) ? 17.3 : 0;
    }
    for (std::size_t c = 0; c < of.classes; ++c) {
      for (std::size_t i = 0; i < of.features; ++i)
        in.w[c * of.features + i] = i == c ? 1 : 0.001 * static_cast<double>(i);
    }
    const Reference want(of, in, float());
    EXPECT_LT(want.losses[0], 2e-6);
    const World world(batches.size());
    world.run([&](int rank, aiacc_group_t group) { step<float>(of, in, want, rank, group, AIACC_FLOAT32, 1e-6); });
  }
}

// exp of them overflows, and the losses are up to some 10^4.
TEST(Softmax, EqualsOneProcessWithLogitsOfTenThousand) {
  for (const auto& batches : kBatches) {
    Case of;
    of.batches = batches;
    of.spread = 1e4;
    check(of, 1e-11);  // a difference of such numbers in fp64 is off by 2e-12
  }
}

// exp of it overflows; the losses are up to 10^4.
TEST(Softmax, HoldsForLogitsOfTenThousand) {
  const World world(3);
  world.run([&](int rank, aiacc_group_t group) {
    Case of;
    of.batches = {2, 0, 1};
    of.classes = 3;
    const aiacc_softmax_shard_t shard = shard_of(of, group, AIACC_FLOAT32);
    constexpr float kLogits[3][3] = {{1e4F, -1e4F, 0}, {-1e4F, 1e4F, 9999}, {-1e4F, -1e4F, -1e4F}};
    float logits[3];
    for (int row = 0; row < 3; ++row) logits[row] = kLogits[row][rank];
    const std::int64_t labels[3] = {0, 2, 1};
    double losses[3];
    EXPECT_AIACC(aiacc_softmax_loss(&shard, logits, labels, losses, group, nullptr));
    EXPECT_EQ(losses[0], 0);
    EXPECT_NEAR(losses[1], 1 + std::log1p(std::exp(-1)), 1e-6);
    EXPECT_NEAR(losses[2], std::log(3), 1e-6);
    EXPECT_NEAR(logits[2], (1.0 / 3 - (rank == 1 ? 1 : 0)) / 3, 1e-6);
  });
}

TEST(Softmax, SamplesEveryLabelAndOthersAlikeEverywhere) {
  const std::vector<std::int64_t> labels = {105, 3, 150, 105, 199, 200, 99};
  std::vector<std::int64_t> first(100), again(100), other(100), all(100);
  std::size_t n = 0;
  EXPECT_AIACC(aiacc_softmax_sample(100, 100, labels.data(), labels.size(), 20, 5, first.data(), &n));
  EXPECT_EQ(n, 20U);
  for (const std::int64_t label : {105, 150, 199})
    EXPECT_TRUE(std::count(first.begin(), first.begin() + 20, label) == 1);
  EXPECT_TRUE(std::is_sorted(first.begin(), first.begin() + 20));
  EXPECT_TRUE(first[0] >= 100 && first[19] < 200);
  EXPECT_AIACC(aiacc_softmax_sample(100, 100, labels.data(), labels.size(), 20, 5, again.data(), &n));
  EXPECT_EQ(first, again);
  EXPECT_AIACC(aiacc_softmax_sample(100, 100, labels.data(), labels.size(), 20, 6, other.data(), &n));
  EXPECT_NE(first, other);
  EXPECT_AIACC(aiacc_softmax_sample(100, 100, labels.data(), labels.size(), 2, 5, other.data(), &n));
  EXPECT_EQ(n, 3U) << "labels are in although fewer were wanted";
  EXPECT_AIACC(aiacc_softmax_sample(100, 100, labels.data(), labels.size(), 1000, 5, all.data(), &n));
  EXPECT_EQ(n, 100U);
  EXPECT_EQ(all[99], 199);
}

// With all classes sampled the loss is the full one; with some, that of a classifier that has only these.
TEST(Softmax, TakesSampledClasses) {
  const World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    Case of;
    of.batches = {1, 1};
    of.classes = 6;
    aiacc_softmax_shard_t shard = shard_of(of, group, AIACC_FLOAT64);
    const std::vector<double> whole[2] = {{1, 2, 3, 4, 5, 6}, {2, -1, 0, 3, 1, 1}};
    const std::int64_t labels[2] = {5, 0};
    const std::vector<std::int64_t> ids = rank == 0 ? std::vector<std::int64_t>{0, 2} : std::vector<std::int64_t>{5};
    shard.classes = ids.size();
    shard.ids = ids.data();
    std::vector<double> logits;
    for (const auto& row : whole) {
      for (const std::int64_t id : ids) logits.push_back(row[static_cast<std::size_t>(id)]);
    }
    double losses[2];
    EXPECT_AIACC(aiacc_softmax_loss(&shard, logits.data(), labels, losses, group, nullptr));
    EXPECT_NEAR(losses[0], std::log(std::exp(1) + std::exp(3) + std::exp(6)) - 6, 1e-12);
    EXPECT_NEAR(losses[1], std::log(std::exp(2) + std::exp(0) + std::exp(1)) - 2, 1e-12);
    const std::int64_t nowhere[2] = {5, 1};
    EXPECT_AIACC(aiacc_softmax_loss(&shard, logits.data(), nowhere, losses, group, nullptr));
    EXPECT_EQ(losses[1], std::numeric_limits<double>::infinity()) << "no rank has class 1";
  });
}

TEST(Softmax, RefusesBadArguments) {
  const World world(1);
  world.run([&](int, aiacc_group_t group) {
    Case of;
    of.batches = {2};
    of.classes = 3;
    const aiacc_softmax_shard_t good = shard_of(of, group, AIACC_FLOAT32);
    aiacc_softmax_shard_t shard = good;
    float logits[6] = {};
    std::int64_t labels[2] = {0, 1};
    double losses[2];
    const auto refused = [&](const char* word) {
      expect(aiacc_softmax_loss(&shard, logits, labels, losses, group, nullptr), AIACC_ERR_INVALID_ARGUMENT, word);
      shard = good;
      labels[1] = 1;
    };
    labels[1] = 3;
    refused("labels[1] is 3: classes are 0 to 2");
    labels[1] = -1;
    refused("labels[1] is -1");
    shard.dtype = AIACC_FLOAT16;
    refused("dtype in aiacc_softmax_shard_t is");
    shard.margin_kind = 7;
    refused("margin_kind in aiacc_softmax_shard_t is 7");
    shard.margin = std::nan("");
    refused("margin in aiacc_softmax_shard_t is nan");
    shard.first_class = 1;
    refused("first_class in aiacc_softmax_shard_t is 1, with 3 classes of 3");
    const std::int64_t ids[3] = {0, 2, 2};
    shard.ids = ids;
    refused("ids[2] is 2: ids ascend");
    shard.size = 1;
    refused("size in aiacc_softmax_shard_t is 1");
    expect(aiacc_softmax_loss(nullptr, logits, labels, losses, group, nullptr), AIACC_ERR_INVALID_ARGUMENT,
           "shard is NULL");
    expect(aiacc_softmax_loss(&shard, nullptr, labels, losses, group, nullptr), AIACC_ERR_INVALID_ARGUMENT,
           "logits is NULL");
    expect(aiacc_softmax_loss(&shard, logits, nullptr, losses, group, nullptr), AIACC_ERR_INVALID_ARGUMENT,
           "labels is NULL");
    expect(aiacc_softmax_loss(&shard, logits, labels, nullptr, group, nullptr), AIACC_ERR_INVALID_ARGUMENT,
           "losses is NULL");
    EXPECT_AIACC(aiacc_softmax_loss(&shard, logits, labels, losses, group, nullptr));
  });
}

TEST(Softmax, ToldOfAnotherNumberOfRows) {
  const World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    Case of;
    of.batches = {2, rank == 0 ? std::size_t{1} : std::size_t{2}};
    of.classes = 2;
    const aiacc_softmax_shard_t shard = shard_of(of, group, AIACC_FLOAT32);
    float logits[4] = {};
    const std::int64_t labels[4] = {};
    double losses[4];
    expect(aiacc_softmax_loss(&shard, logits, labels, losses, group, nullptr), AIACC_ERR_MISMATCH,
           "operator 'softmax'");
  });
}

}  // namespace
}  // namespace aiacc

// SyncBN through the C ABI: every rank against batch normalisation of the joined batch in one process, in long double.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "bindings/c/syncbn_world_test.h"

namespace aiacc::syncbn_test {
namespace {

using test::expect;
using test::says;
using test::World;

TEST(Syncbn, EqualsOneProcessForAllTypesAndLayouts) {
  for (const aiacc_dtype_t dtype : {AIACC_FLOAT32, AIACC_FLOAT64, AIACC_FLOAT16, AIACC_BFLOAT16}) {
    for (const int32_t layout : {AIACC_CHANNELS_FIRST, AIACC_CHANNELS_LAST}) {
      Case of;
      of.samples = {4, 3, 5};
      of.channels = 11;
      of.positions = 21;
      of.dtype = dtype;
      of.layout = layout;
      if (dtype == AIACC_FLOAT64) of.tolerance = 1e-13;
      check(of);
    }
  }
}

TEST(Syncbn, EqualsOneProcessForUnevenAndEmptyBatches) {
  for (const auto& samples :
       std::vector<std::vector<std::size_t>>{{6}, {3, 3}, {1, 7}, {0, 5}, {5, 0, 0, 2}, {1, 1}, {2, 1, 4, 3, 1}}) {
    Case of;
    of.samples = samples;
    check(of);
    of.positions = 1;
    of.channels = 70;
    of.affine = false;
    check(of);
  }
}

TEST(Syncbn, KeepsRunningStatisticsAsMxnetDoes) {
  Case of;
  of.samples = {2, 3};
  of.convention = AIACC_SYNCBN_MXNET;
  of.momentum = 0.9;
  check(of);
}

TEST(Syncbn, HoldsWhereTheMeanIsTenThousandDeviations) {
  for (const aiacc_dtype_t dtype : {AIACC_FLOAT32, AIACC_FLOAT64}) {
    for (const int32_t layout : {AIACC_CHANNELS_FIRST, AIACC_CHANNELS_LAST}) {
      Case of;
      of.samples = {20, 1, 30};
      of.channels = 2;
      of.positions = 50;
      of.dtype = dtype;
      of.layout = layout;
      of.mean = 1e4;
      of.deviation = 1;
      check(of);
    }
  }
}

TEST(Syncbn, NormalisesAConstantChannelToItsBias) {
  Case of;
  of.samples = {2, 3};
  of.mean = 0.1;
  of.deviation = 0;
  check(of);
}

TEST(Syncbn, CountsBeyondTwoToThe24) {
  if (test::kSanitized) GTEST_SKIP() << "too much work under a sanitizer";
  // 2^24 + 1 elements of one channel in fp16, all 1 but for the last, which is 3. In fp32 the count would be 2^24.
  constexpr std::size_t kMany = (std::size_t{1} << 24) + 1;
  const World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_syncbn_t syncbn = syncbn_of(group);
    Case of;
    of.channels = 1;
    of.dtype = AIACC_FLOAT16;
    of.positions = rank == 0 ? kMany - 1 : 1;
    std::vector<std::uint16_t> x(of.positions, 0x3c00);
    if (rank == 1) x[0] = 0x4200;
    const aiacc_syncbn_batch_t batch = batch_of(of, 1);
    const aiacc_syncbn_layer_t layer = layer_of(of);
    double saved[3];
    EXPECT_AIACC(aiacc_syncbn_forward(syncbn, &batch, &layer, x.data(), x.data(), saved));
    EXPECT_EQ(saved[2], static_cast<double>(kMany));
    EXPECT_NEAR(saved[0], 1 + 2.0 / static_cast<double>(kMany), 0x1p-40);
  });
}

// The loss is the sum of y * dy over the joined batch, with a batch of its own for each changed element.
TEST(Syncbn, GradientsAreThoseOfFiniteDifferences) {
  Case of;
  of.samples = {2, 0, 1};
  of.channels = 2;
  of.positions = 3;
  of.dtype = AIACC_FLOAT64;
  const Inputs in(of);
  const World world(3);
  constexpr double kStep = 1e-6;
  std::vector<double> parts(3);
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_syncbn_t syncbn = syncbn_of(group);
    const std::size_t n = of.of(rank), first = of.first(rank);
    const aiacc_syncbn_batch_t batch = batch_of(of, of.samples[static_cast<std::size_t>(rank)]);
    aiacc_syncbn_layer_t layer = layer_of(of);
    std::vector<double> x(of.elements()), dy(of.elements()), weight(2), bias(2), y(n + 1), dx(n + 1), saved(5);
    std::memcpy(x.data(), in.x.data(), x.size() * 8);
    std::memcpy(dy.data(), in.dy.data(), dy.size() * 8);
    std::memcpy(weight.data(), in.weight.data(), 16);
    std::memcpy(bias.data(), in.bias.data(), 16);
    layer.weight = weight.data();
    layer.bias = bias.data();
    const auto loss = [&] {
      EXPECT_AIACC(aiacc_syncbn_forward(syncbn, &batch, &layer, x.data() + first, y.data(), saved.data()));
      double own = 0, all = 0;
      for (std::size_t i = 0; i < n; ++i) own += y[i] * dy[first + i];
      EXPECT_AIACC(aiacc_allreduce(&own, &all, 1, AIACC_FLOAT64, AIACC_SUM, group, nullptr, nullptr));
      return all;
    };
    const auto slope = [&](double& number) {
      const double was = number;
      number = was + kStep;
      const double above = loss();
      number = was - kStep;
      const double below = loss();
      number = was;
      return (above - below) / (2 * kStep);
    };
    double dweight[2], dbias[2];
    loss();
    EXPECT_AIACC(aiacc_syncbn_backward(syncbn, &batch, weight.data(), saved.data(), x.data() + first, dy.data() + first,
                                       dx.data(), dweight, dbias));
    // Every rank changes the same element of its copy, of which one rank owns a part.
    for (std::size_t i = 0; i < of.elements(); ++i) {
      const double found = slope(x[i]);
      if (i < first || i >= first + n) continue;
      EXPECT_NEAR(dx[i - first], found, 1e-7) << i;
    }
    for (std::size_t c = 0; c < 2; ++c) {
      double sums[2] = {dweight[c], dbias[c]};
      EXPECT_AIACC(aiacc_allreduce(sums, sums, 2, AIACC_FLOAT64, AIACC_SUM, group, nullptr, nullptr));
      EXPECT_NEAR(sums[0], slope(weight[c]), 1e-7);
      EXPECT_NEAR(sums[1], slope(bias[c]), 1e-7);
    }
  });
}

TEST(Syncbn, ServesLayersOfAllWidthsWithOneHandle) {
  const World world(4);
  std::vector<Case> cases;
  for (const std::size_t channels : {1, 64, 3, 2048, 256}) {
    Case of;
    of.samples = {1, 2, 1, 3};
    of.channels = channels;
    cases.push_back(of);
  }
  std::vector<Inputs> inputs(cases.begin(), cases.end());
  std::vector<Reference> wants;
  for (std::size_t i = 0; i < cases.size(); ++i) wants.emplace_back(cases[i], inputs[i]);
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_syncbn_t syncbn = syncbn_of(group);
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < cases.size(); ++i) compare(cases[i], inputs[i], wants[i], rank, syncbn);
    }
    // Freed with the context.
  });
}

TEST(Syncbn, RefusesWhatHasNoStatisticsOnEveryRank) {
  const World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_syncbn_t syncbn = syncbn_of(group);
    Case of;
    of.channels = 1;
    of.positions = 1;
    aiacc_syncbn_layer_t layer = layer_of(of);
    float x = 3, y = 7, running = 5;
    double saved[3];
    layer.running_mean = &running;
    aiacc_syncbn_batch_t batch = batch_of(of, 0);
    expect(aiacc_syncbn_forward(syncbn, &batch, &layer, nullptr, nullptr, saved), AIACC_ERR_INVALID_ARGUMENT,
           "SyncBN 'layers': the batches of all ranks are empty");
    batch.samples = rank == 0 ? 1 : 0;
    expect(aiacc_syncbn_forward(syncbn, &batch, &layer, &x, &y, saved), AIACC_ERR_INVALID_ARGUMENT,
           "1 value of a channel");
    EXPECT_TRUE(y == 7 && running == 5);
    layer.convention = AIACC_SYNCBN_MXNET;  // whose variance of one value is 0
    EXPECT_AIACC(aiacc_syncbn_forward(syncbn, &batch, &layer, &x, &y, saved));
    EXPECT_EQ(y, rank == 0 ? 0.0F : 7.0F);
  });
}

TEST(Syncbn, ToldOfAnotherNumberOfChannels) {
  // With 65 and 66 channels messages have equal lengths.
  for (const std::size_t other : {std::size_t{64}, std::size_t{65}}) {
    const World world(3);
    world.run([&](int rank, aiacc_group_t group) {
      const aiacc_syncbn_t syncbn = syncbn_of(group);
      Case of;
      of.channels = rank == 1 ? other : std::size_t{66};
      of.positions = 1;
      std::vector<float> x(of.channels * 2, 1.0F);
      std::vector<double> saved(2 * of.channels + 1);
      const aiacc_syncbn_batch_t batch = batch_of(of, 2);
      const aiacc_syncbn_layer_t layer = layer_of(of);
      expect(aiacc_syncbn_forward(syncbn, &batch, &layer, x.data(), x.data(), saved.data()), AIACC_ERR_MISMATCH,
             ("'" + std::to_string(other) + " channels'").c_str());
      EXPECT_TRUE(says("'66 channels'")) << aiacc_last_error();
      EXPECT_TRUE(says("SyncBN 'layers', forward over ")) << aiacc_last_error();
      expect(aiacc_syncbn_forward(syncbn, &batch, &layer, x.data(), x.data(), saved.data()), AIACC_ERR_ABORTED,
             "channels'");
      EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));  // no other group
    });
  }
}

// Some ranks have more batches than others.
TEST(Syncbn, ToldOfARankThatIsOutOfBatches) {
  const World world(3);
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_syncbn_t syncbn = syncbn_of(group);
    Case of;
    std::vector<float> x(of.channels * of.positions, static_cast<float>(rank));
    std::vector<double> saved(2 * of.channels + 1);
    const aiacc_syncbn_batch_t batch = batch_of(of, 1);
    const aiacc_syncbn_layer_t layer = layer_of(of);
    const auto forward = [&] { return aiacc_syncbn_forward(syncbn, &batch, &layer, x.data(), x.data(), saved.data()); };
    EXPECT_AIACC(forward());
    EXPECT_AIACC(aiacc_syncbn_join(syncbn));
    EXPECT_AIACC(forward());
    EXPECT_AIACC(aiacc_syncbn_join(syncbn));
    expect(rank == 1 ? aiacc_syncbn_join(syncbn) : forward(), AIACC_ERR_MISMATCH,
           rank == 1 ? "SyncBN 'layers', out of batches here: " : "(a barrier: out of batches)");
    EXPECT_TRUE(says("rank 1: barrier") && says("'3 channels'")) << aiacc_last_error();
    expect(aiacc_syncbn_join(syncbn), AIACC_ERR_ABORTED, "barrier");
    EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));  // no other group
  });
}

// Also where the others wait without a time-out.
TEST(Syncbn, AbortEndsCallsOfTheOthers) {
  const World world(3);
  world.run([&](int rank, aiacc_group_t group) {
    Case of;
    of.channels = 3;
    of.positions = 2;
    const aiacc_syncbn_t syncbn = syncbn_of(group);
    const aiacc_syncbn_batch_t batch = batch_of(of, 1);
    std::vector<float> x(6, 1.0f);
    double saved[7];
    const aiacc_syncbn_layer_t layer = layer_of(of);
    if (rank == 1) {
      EXPECT_AIACC(aiacc_syncbn_abort(syncbn, "gone"));
    }
    expect(aiacc_syncbn_join(syncbn), AIACC_ERR_ABORTED, "gone");
    expect(aiacc_syncbn_forward(syncbn, &batch, &layer, x.data(), x.data(), saved), AIACC_ERR_ABORTED, "gone");
    EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));  // no other group
  });
  expect(aiacc_syncbn_abort(AIACC_NULL, nullptr), AIACC_ERR_INVALID_HANDLE, "");
}

TEST(Syncbn, RefusesBadArguments) {
  const World world(1);
  world.run([&](int, aiacc_group_t group) {
    const aiacc_syncbn_t syncbn = syncbn_of(group);
    Case of;
    of.channels = 2;
    of.positions = 2;
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8];
    double saved[5];
    const aiacc_syncbn_batch_t good_batch = batch_of(of, 2);
    const aiacc_syncbn_layer_t good_layer = layer_of(of);
    aiacc_syncbn_batch_t batch = good_batch;
    aiacc_syncbn_layer_t layer = good_layer;
    const auto refused = [&](const char* word) {
      expect(aiacc_syncbn_forward(syncbn, &batch, &layer, x, y, saved), AIACC_ERR_INVALID_ARGUMENT, word);
      batch = good_batch;
      layer = good_layer;
    };
    batch.channels = 0;
    refused("channels in aiacc_syncbn_batch_t is 0");
    batch.dtype = AIACC_INT32;
    refused("dtype in aiacc_syncbn_batch_t is int32");
    batch.layout = 2;
    refused("layout in aiacc_syncbn_batch_t is 2");
    batch.samples = std::numeric_limits<std::size_t>::max() / 2;
    refused("");
    batch.size = 8;
    refused("size in aiacc_syncbn_batch_t is 8");
    layer.size = 0;
    refused("size in aiacc_syncbn_layer_t is 0");
    layer.epsilon = -1;
    refused("epsilon in aiacc_syncbn_layer_t is -1");
    layer.epsilon = std::nan("");
    refused("epsilon in aiacc_syncbn_layer_t is nan");
    layer.momentum = INFINITY;
    refused("momentum in aiacc_syncbn_layer_t is inf");
    layer.convention = 5;
    refused("convention in aiacc_syncbn_layer_t is 5");
    expect(aiacc_syncbn_forward(syncbn, nullptr, &layer, x, y, saved), AIACC_ERR_INVALID_ARGUMENT, "batch is NULL");
    expect(aiacc_syncbn_forward(syncbn, &batch, nullptr, x, y, saved), AIACC_ERR_INVALID_ARGUMENT, "layer is NULL");
    expect(aiacc_syncbn_forward(syncbn, &batch, &layer, nullptr, y, saved), AIACC_ERR_INVALID_ARGUMENT, "x is NULL");
    expect(aiacc_syncbn_forward(syncbn, &batch, &layer, x, nullptr, saved), AIACC_ERR_INVALID_ARGUMENT, "y is NULL");
    expect(aiacc_syncbn_forward(syncbn, &batch, &layer, x, y, nullptr), AIACC_ERR_INVALID_ARGUMENT, "saved is NULL");
    expect(aiacc_syncbn_forward(syncbn, &batch, &layer, x, x + 1, saved), AIACC_ERR_INVALID_ARGUMENT, "overlap");
    expect(aiacc_syncbn_forward(group, &batch, &layer, x, y, saved), AIACC_ERR_INVALID_HANDLE,
           "not a handle of aiacc_syncbn_create");
    EXPECT_AIACC(aiacc_syncbn_forward(syncbn, &batch, &layer, x, y, saved));
    saved[4] = 3;
    expect(aiacc_syncbn_backward(syncbn, &batch, nullptr, saved, x, y, y, nullptr, nullptr), AIACC_ERR_INVALID_ARGUMENT,
           "saved has 3 elements of a channel, and this batch has 4");
    saved[4] = 4;
    EXPECT_AIACC(aiacc_syncbn_backward(syncbn, &batch, nullptr, saved, x, y, y, nullptr, nullptr));
    EXPECT_AIACC(aiacc_syncbn_backward(syncbn, &batch, nullptr, saved, x, y, nullptr, nullptr, nullptr));
    EXPECT_AIACC(aiacc_syncbn_free(syncbn));
    expect(aiacc_syncbn_free(syncbn), AIACC_ERR_INVALID_HANDLE, "does not exist any more");
    expect(aiacc_syncbn_create(group, nullptr, nullptr), AIACC_ERR_INVALID_ARGUMENT, "syncbn is NULL");
  });
}

}  // namespace
}  // namespace aiacc::syncbn_test

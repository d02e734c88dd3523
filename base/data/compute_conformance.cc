// The conformance suite of Compute; compute_conformance.h has the fixture. It is a unit of its own because several
// tests of one program instantiate it.
#include "base/data/compute_conformance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/data/codec.h"

namespace aiacc {

TEST_P(ComputeConformance, EveryTypeAndOperatorIsExact) {
  for_each_reduction([this](const Reduction& how) {
    for (std::size_t count : {0, 1, 3, 15, 16, 17, 63, 64, 65, 255, 257, 1031}) {
      check(how, count, 2, 1, 0, 0, {.ranks = 2});
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(ComputeConformance, AnyNumberOfOperandsAndDestinations) {
  for_each_reduction([this](const Reduction& how) {
    for (int ranks : {1, 2, 3, 4, 5, 7, 8, 40}) {
      check(how, 333, ranks, ranks, 0, 0, {.ranks = ranks});
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(ComputeConformance, InPlaceAndMisaligned) {
  for_each_reduction([this](const Reduction& how) {
    for (std::size_t misalignment : {0, 1, 7, 31}) {
      check(how, 517, 3, 3, 3, misalignment, {.ranks = 3});
      check(how, 517, 4, 2, 1, misalignment, {.ranks = 4});
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(ComputeConformance, ScalesAreAppliedInTheAccumulateType) {
  for_each_reduction([this](Reduction how) {
    for (const auto& [pre, post] : {std::pair{0.3, 1.0}, std::pair{1.0, 0.1}, std::pair{1.7, 65536.5}}) {
      how.prescale = pre;
      how.postscale = post;
      check(how, 259, 3, 1, 0, 1, {.ranks = 3});
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(ComputeConformance, AStepAppliesScalesOnlyWhereItIsFirstOrLast) {
  for_each_reduction([this](Reduction how) {
    how.prescale = 3.0;
    how.postscale = 0.25;
    check(how, 77, 2, 1, 1, 0, {.first = false, .last = false, .ranks = 5});
    check(how, 77, 2, 1, 1, 0, {.first = true, .last = false, .ranks = 5});
    check(how, 77, 2, 1, 1, 0, {.first = false, .last = true, .ranks = 5});
  });
}

TEST_P(ComputeConformance, AnAverageOfMoreRanksThanTheTypeCountsDividesByTheirNumber) {
  for (DType type : {DType::kInt8, DType::kUInt8, DType::kInt32, DType::kFloat16}) {
    check({.type = type, .op = ReduceOp::kAvg}, 65, 2, 1, 0, 0, {.ranks = 300});
  }
}

TEST_P(ComputeConformance, PartialSumsOfHalvesKeepAllDigitsUntilTheLastStep) {
  for (DType type : {DType::kFloat16, DType::kBFloat16}) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProd}) {
      for (const bool takes : {false, true}) {
        Reduction how{.type = type, .op = op, .prescale = 0.3, .postscale = 1.7};
        (takes ? how.operands : how.results) = how.accumulate_type();
        EXPECT_EQ(how.takes_partials(), takes);
        EXPECT_EQ(how.leaves_partials(), !takes);
        EXPECT_FALSE(how.narrows());
        for (std::size_t count : {0, 1, 7, 8, 31, 32, 33, 517}) {
          check(how, count, 3, 2, 0, count % 5, {.first = false, .last = false, .ranks = 3});
          check(how, count, 5, 1, 0, 0, {.first = true, .last = true, .ranks = 9});
          check(how, count, 1, 1, 0, 2, {.first = true, .last = false});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A step of a ring that sends a wire type of its own: the received operand, its own operand, and the result to send or
// keep.
TEST_P(ComputeConformance, EachOperandAndResultHasATypeOfItsOwn) {
  const DType floats[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32};
  for (const DType type : floats) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProd}) {
      for (int types = 0; types < 81; ++types) {
        Reduction how{.type = type, .op = op, .prescale = 0.3, .postscale = 1.7};
        how.operands = {floats[types % 3], floats[types / 3 % 3]};
        how.results = {floats[types / 9 % 3], floats[types / 27]};
        for (const std::size_t count : {1, 517, 1025}) {
          check(how, count, 2, 2, 0, 4, {.first = types % 2 == 0, .last = types % 5 < 3, .ranks = 3});
          if (HasFatalFailure()) return;
        }
        check(how, 100, 4, 1, 0, 0, {.ranks = 4});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// An element's position in the array (at the end, in the middle, alone) does not change its bits.
TEST_P(ComputeConformance, APlaceInTheArrayDoesNotMatter) {
  for_each_reduction([this](const Reduction& how) {
    const std::size_t size = size_of(how.type);
    const std::size_t count = 301;
    compute_conformance::Arena operands({compute_conformance::elements(how.type, count, random_),
                                         compute_conformance::elements(how.type, count, random_)},
                                        0);
    compute_conformance::Arena whole({Bytes(count * size)}, 0);
    compute_conformance::Arena pieces({Bytes(count * size)}, 0);
    const Compute::Step step{.ranks = 2};
    under_test_->run(
        compute_conformance::reduce(under_test_->compute(), whole.buffers(), operands.buffers(), count, how, step));
    for (std::size_t at = 0; at < count; ++at) {
      std::vector<Buffer> from;
      for (const Buffer& operand : operands.buffers()) from.push_back(operand.slice(at * size, size));
      const std::vector<Buffer> to{pieces.buffers()[0].slice(at * size, size)};
      under_test_->run(compute_conformance::reduce(under_test_->compute(), to, from, 1, how, step));
    }
    const bool any_payload = how.op == ReduceOp::kSum || how.op == ReduceOp::kAvg || how.op == ReduceOp::kProd;
    const auto bits = [&](const Bytes& bytes) {
      return any_payload ? compute_conformance::without_payload(bytes, how.type) : bytes;
    };
    ASSERT_EQ(bits(whole.content(0)), bits(pieces.content(0))) << name_of(how.type) << ' ' << name_of(how.op);
  });
}

TEST_P(ComputeConformance, CopiesAnyLength) {
  for (std::size_t bytes : {0, 1, 63, 64, 4096, 100'001}) {
    compute_conformance::Arena from({compute_conformance::elements(DType::kUInt8, bytes, random_)}, 3);
    compute_conformance::Arena to({Bytes(bytes)}, 5);
    under_test_->run(compute_conformance::copy(under_test_->compute(), to.buffers()[0], from.buffers()[0]));
    ASSERT_EQ(to.content(0), from.content(0));
    ASSERT_TRUE(to.guards_hold(0));
  }
}

// Blocks of ordinary, large and small numbers and of those that are not finite, and a last one that is not full. `least` is the error
// that any number may have, in fp16 as a part of its block's scale.
void expect_rounded_once(ComputeUnderTest& under_test, Codec codec, std::size_t count, float relative, float least,
                         std::mt19937_64& random) {
  constexpr float kScales[] = {1.0F, 1e37F, 1e-37F, 0.0F, 1.0F};
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = kScales[i / kCodedBlock] * (static_cast<float>(random() % 2001) / 1000.0F);
  if (count > kCodedBlock) values[5] = std::numeric_limits<float>::infinity();
  if (count > kCodedBlock) values[7] = std::numeric_limits<float>::quiet_NaN();
  const auto* const begin = reinterpret_cast<const std::byte*>(values.data());
  const compute_conformance::Bytes from(begin, begin + count * sizeof(float));
  compute_conformance::Arena arena(
      {from, compute_conformance::Bytes(encoded_bytes(codec, count)), compute_conformance::Bytes(from.size()), from},
      count % 8);
  const std::vector<Buffer>& buffers = arena.buffers();
  under_test.run(compute_conformance::encode_and_decode(under_test.compute(), codec, buffers[0], buffers[1], buffers[2],
                                                        buffers[3]));
  for (std::size_t i = 0; i < arena.buffers().size(); ++i) ASSERT_TRUE(arena.guards_hold(i));
  const auto written = arena.content(2), added = arena.content(3);
  for (std::size_t i = 0; i < count; ++i) {
    float one, sum;
    std::memcpy(&one, written.data() + i * sizeof one, sizeof one);
    std::memcpy(&sum, added.data() + i * sizeof sum, sizeof sum);
    if (!std::isfinite(values[i])) {
      EXPECT_EQ(std::isnan(one), std::isnan(values[i]));
      EXPECT_FALSE(std::isfinite(one) || std::isfinite(sum));
      continue;
    }
    const float smallest = codec == Codec::kFloat16 ? kScales[i / kCodedBlock] * least : least;
    ASSERT_NEAR(one, values[i], std::max(std::fabs(values[i]) * relative, smallest)) << i;
    ASSERT_EQ(sum, values[i] + one) << i;
  }
}

TEST_P(ComputeConformance, CodedElementsAreRoundedOnceAndBlocksDoNotTouchEachOther) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, kCodedBlock, 4 * kCodedBlock + 37}) {
    expect_rounded_once(*under_test_, Codec::kFloat16, count, 0x1p-11F, 0x1p-38F, random_);
    expect_rounded_once(*under_test_, Codec::kBFloat16, count, 0x1p-8F, 0x1p-134F, random_);
  }
}

}  // namespace aiacc

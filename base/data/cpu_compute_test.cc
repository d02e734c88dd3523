#include "base/data/cpu_compute.h"

#include <gtest/gtest.h>

#include "base/data/compute_conformance.h"
#include "base/task/test_loop.h"

namespace aiacc {
namespace {

class CpuUnderTest final : public ComputeUnderTest {
 public:
  explicit CpuUnderTest(const kernels::Table& table) : compute_(table) {}
  Compute& compute() override { return compute_; }
  void run(Task<void> task) override { loop_.run(std::move(task)); }

 private:
  CpuCompute compute_;
  TestLoop loop_;
};

// The kernel tables; in place of one that this processor cannot run, the previous one is tested.
template <std::size_t Index>
std::unique_ptr<ComputeUnderTest> make() {
  const auto tables = kernels::tables();
  return std::make_unique<CpuUnderTest>(*tables[std::min(Index, tables.size() - 1)]);
}

INSTANTIATE_TEST_SUITE_P(Baseline, ComputeConformance, ::testing::Values(&make<0>));
INSTANTIATE_TEST_SUITE_P(Wide, ComputeConformance, ::testing::Values(&make<1>));
INSTANTIATE_TEST_SUITE_P(Widest, ComputeConformance, ::testing::Values(&make<2>));

bool is_nan(DType type, std::uint16_t bits) { return (bits & 0x7fff) > (type == DType::kFloat16 ? 0x7c00 : 0x7f80); }

// All 65,536 patterns of fp16 and bf16, and every rounding boundary between two adjacent values.
TEST(CpuCompute, EveryHalfSurvivesAndEveryTieRoundsToEven) {
  for (const kernels::Table* table : kernels::tables()) {
    for (DType type : {DType::kFloat16, DType::kBFloat16}) {
      std::vector<std::uint16_t> in(65'536), next(65'536), out(65'536), expected(65'536);
      for (std::size_t i = 0; i < in.size(); ++i) {
        in[i] = static_cast<std::uint16_t>(i);
        next[i] = static_cast<std::uint16_t>(i + 1);
      }
      const Buffer operands[] = {{reinterpret_cast<std::byte*>(in.data()), 131'072},
                                 {reinterpret_cast<std::byte*>(next.data()), 131'072}};
      const Buffer to{reinterpret_cast<std::byte*>(out.data()), 131'072};
      CpuCompute compute(*table);
      const Compute::Step step{.ranks = 2};
      for (double prescale : {1.0, 0.5}) {  // the mean of two adjacent values is a tie
        const Reduction how{.type = type, .op = ReduceOp::kSum, .prescale = prescale};
        const std::span<const Buffer> from(operands, prescale == 1.0 ? 1 : 2);
        reference::reduce(reinterpret_cast<std::byte*>(expected.data()), from, in.size(), how, step);
        Stop stop;
        EXPECT_TRUE(compute.reduce({&to, 1}, from, in.size(), how, step, stop).await_ready());
        for (std::size_t i = 0; i < in.size(); ++i) {
          // The payload of a NaN is unspecified.
          if (from.size() == 2 && is_nan(type, in[i]) && is_nan(type, next[i])) continue;
          ASSERT_EQ(out[i], expected[i]) << table->name << ' ' << name_of(type) << " pattern " << i << " scale "
                                         << prescale;
        }
      }
    }
  }
}

TEST(CpuCompute, NamesEveryTypeAndOperator) {
  for (int type = 0; type < kDTypes; ++type) EXPECT_NE(name_of(static_cast<DType>(type)), "unknown type");
  for (int op = 0; op < kReduceOps; ++op) EXPECT_NE(name_of(static_cast<ReduceOp>(op)), "unknown operator");
}

}  // namespace
}  // namespace aiacc

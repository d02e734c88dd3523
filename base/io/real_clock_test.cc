#include "base/io/clock_conformance.h"
#include "base/io/real_fixture.h"

namespace aiacc::io {
namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(Real, ClockConformance, RealFixture);

TEST(RealEntropy, DiffersFromCallToCall) {
  std::array<std::byte, 32> first{};
  std::array<std::byte, 32> second{};
  RealEntropy entropy;
  entropy.fill(first);
  entropy.fill(second);
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace aiacc::io

#include "runtime/group/pair_sequences.h"
#include "runtime/group/calls_test.h"

#include <gtest/gtest.h>

namespace aiacc {
namespace {

TEST(PairSequences, CountEachPairAndTagAndDirection) {
  constexpr std::uint32_t kTags = 5000;
  PairSequences pairs;
  EXPECT_EQ(pairs.next_from(0, 0), 1u);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    for (std::uint32_t tag = 0; tag < kTags; ++tag) {
      for (const int rank : {0, 3}) {
        for (const Collective kind : {Collective::kSend, Collective::kRecv}) {
          ASSERT_EQ(pairs.next(PlainCall::of(message_of(kind, rank, tag * 65537))), round) << tag;
        }
      }
      ASSERT_EQ(pairs.next_from(3, tag * 65537), round + 1);
    }
  }
  EXPECT_EQ(pairs.next(PlainCall::of(message_of(Collective::kRecv, 0, ~std::uint32_t{0}))), 1u);
  EXPECT_EQ(pairs.next(PlainCall::of(message_of(Collective::kSend, 0, ~std::uint32_t{0}))), 1u);
  EXPECT_EQ(pairs.next_from(0, ~std::uint32_t{0}), 2u);
  EXPECT_EQ(pairs.next_from(1, ~std::uint32_t{0}), 1u);
  EXPECT_EQ(pairs.next_from(1, 0), 1u);
}

}  // namespace
}  // namespace aiacc

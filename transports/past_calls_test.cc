#include "transports/past_calls.h"

#include <gtest/gtest.h>

#include <string>

namespace aiacc {
namespace {

struct Named {
  int number = 0;
  std::string describe() const { return "call " + std::to_string(number); }
};

CallNote note_numbered(std::uint64_t number) { return CallNote(Named{static_cast<int>(number)}); }

TEST(PastCalls, TheLastAreKnownAndOlderOnesAreNot) {
  for (const std::uint64_t kind : {std::uint64_t{0}, kPairSequence}) {
    PastCalls past;
    EXPECT_FALSE(past.contains(kind | 1));
    for (std::uint64_t i = 1; i <= 2 * PastCalls::kMost; ++i) past.add(kind | i, 7, note_numbered(i));
    for (std::uint64_t i = 1; i <= 2 * PastCalls::kMost; ++i) {
      EXPECT_EQ(past.contains(kind | i), i > PastCalls::kMost) << i;
      const CallNote* found = past.like(kind | i, 7);
      ASSERT_EQ(found != nullptr, i > PastCalls::kMost) << i;
      if (found == nullptr) continue;
      EXPECT_EQ(found->describe(), "call " + std::to_string(i));
    }
  }
}

TEST(PastCalls, PairsAreForgottenForPairsOnly) {
  PastCalls past;
  past.add(1, 7, note_numbered(1));
  for (std::uint64_t i = 1; i <= PastCalls::kMost; ++i) past.add(kPairSequence | i, 7, note_numbered(i));
  EXPECT_TRUE(past.contains(1));
}

TEST(PastCalls, CallsOfOneNumberAreToldApartByTheirFingerprints) {
  PastCalls past;
  past.add(kPairSequence | 3, 7, note_numbered(1));  // with one rank
  past.add(kPairSequence | 3, 8, note_numbered(2));  // with another
  EXPECT_EQ(past.like(kPairSequence | 3, 7)->describe(), "call 1");
  EXPECT_EQ(past.like(kPairSequence | 3, 8)->describe(), "call 2");
  EXPECT_EQ(past.unlike(kPairSequence | 3, 7)->describe(), "call 2");
  EXPECT_EQ(past.like(kPairSequence | 3, 9), nullptr);
  past.add(4, 7, note_numbered(4));
  EXPECT_EQ(past.unlike(4, 7), nullptr);
  EXPECT_EQ(past.unlike(4, 8)->describe(), "call 4");
}

}  // namespace
}  // namespace aiacc

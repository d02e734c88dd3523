#include "base/biased_count.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace aiacc {
namespace {

TEST(BiasedCount, IsOverWithTheLastUserAfterTheOwners) {
  BiasedCount count;
  count.add_here();
  count.add_here();
  count.add();
  EXPECT_FALSE(count.end(1));
  EXPECT_FALSE(count.owners_are_gone());
  EXPECT_FALSE(count.end(1));
  EXPECT_TRUE(count.end(1));
}

TEST(BiasedCount, IsOverWithTheOwnersAfterTheLastUser) {
  BiasedCount count;
  count.add_here();
  count.add_here();
  EXPECT_FALSE(count.end(2));
  EXPECT_TRUE(count.owners_are_gone());
}

TEST(BiasedCount, MayEndMoreThanWasAddedElsewhereWhileThereAreOwners) {
  BiasedCount count;
  for (int i = 0; i < 1000; ++i) count.add_here();
  EXPECT_FALSE(count.end(999));
  EXPECT_FALSE(count.owners_are_gone());
  EXPECT_TRUE(count.end(1));
}

// The users' threads end while the owners go: one of all learns that it is the last, and sees what every other one wrote.
TEST(BiasedCount, TellsOneThreadOfSeveral) {
  constexpr int kUsers = 4;
  for (int round = 0; round < 200; ++round) {
    BiasedCount count;
    std::vector<int> written(kUsers + 1);
    std::atomic<int> told{0};
    const auto last = [&] {
      ++told;
      for (const int each : written) EXPECT_EQ(each, round + 1);
    };
    for (int i = 0; i < kUsers; ++i) i % 2 == 0 ? count.add() : count.add_here();
    std::vector<std::thread> users;
    for (int i = 0; i < kUsers; ++i) {
      users.emplace_back([&, i] {
        written[static_cast<std::size_t>(i)] = round + 1;
        if (count.end(1)) last();
      });
    }
    written.back() = round + 1;
    if (count.owners_are_gone()) last();
    for (std::thread& user : users) user.join();
    EXPECT_EQ(told, 1);
  }
}

}  // namespace
}  // namespace aiacc

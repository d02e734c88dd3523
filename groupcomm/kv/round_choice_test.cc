// Who sums a round: each worker hears one answer for each push that it was ready for, and all of a round the same.
#include "groupcomm/kv/round_choice.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace aiacc::kv {
namespace {

std::vector<std::pair<int, bool>> taken(std::vector<Answer>& answers) {
  std::vector<std::pair<int, bool>> told;
  for (const Answer& answer : std::exchange(answers, {})) told.emplace_back(answer.worker, answer.together);
  return told;
}

using Told = std::vector<std::pair<int, bool>>;

TEST(KvRoundChoice, AllThatAreReadyAreTold) {
  RoundChoice choice(2);
  std::vector<Answer> answers;
  choice.ready(1, 7, answers);
  EXPECT_EQ(taken(answers), Told{});
  choice.ready(0, 8, answers);
  EXPECT_EQ(taken(answers), (Told{{0, true}, {1, true}}));
}

TEST(KvRoundChoice, OneThatSendsDecides) {
  RoundChoice choice(3);
  std::vector<Answer> answers;
  choice.ready(0, 1, answers);
  choice.sends(1, answers);
  EXPECT_EQ(taken(answers), (Told{{0, false}}));
  choice.ready(2, 2, answers);
  EXPECT_EQ(taken(answers), (Told{{2, false}})) << "it is late, and hears at once";
}

TEST(KvRoundChoice, WhoWithdrawsIsWaitedFor) {
  RoundChoice choice(2);
  std::vector<Answer> answers;
  choice.ready(0, 1, answers);
  choice.withdraw(0, answers);
  EXPECT_EQ(taken(answers), (Told{{0, false}}));
  choice.ready(1, 2, answers);
  EXPECT_EQ(taken(answers), Told{});
  choice.ready(0, 3, answers);
  EXPECT_EQ(taken(answers), (Told{{0, true}, {1, true}}));
  choice.withdraw(0, answers);
  EXPECT_EQ(taken(answers), Told{}) << "too late";
}

TEST(KvRoundChoice, NobodyIsTogetherWithTheLost) {
  RoundChoice choice(2);
  std::vector<Answer> answers;
  choice.ready(0, 1, answers);
  choice.lost(answers);
  choice.ready(0, 2, answers);
  EXPECT_EQ(taken(answers), (Told{{0, false}, {0, false}}));
}

// Workers that send run ahead; one that is ready waits for its answer.
TEST(KvRoundChoice, EqualsTheModelInAnyInterleaving) {
  for (std::uint32_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937 random(seed);
    const std::size_t workers = 1 + random() % 4, rounds = 1 + random() % 6;
    std::vector<std::vector<bool>> ready(rounds, std::vector<bool>(workers));
    for (auto& round : ready) {
      for (std::size_t worker = 0; worker < workers; ++worker) round[worker] = random() % 4 != 0;
    }
    RoundChoice choice(static_cast<int>(workers));
    std::vector<std::size_t> next(workers);
    std::map<std::uint64_t, std::size_t> open;  // by id: the round
    std::vector<bool> waits(workers);
    std::size_t left = workers * rounds;
    while (left > 0) {
      const std::size_t worker = random() % workers;
      std::vector<Answer> answers;
      if (next[worker] == rounds || waits[worker]) continue;
      const std::size_t round = next[worker]++;
      --left;
      if (ready[round][worker]) {
        waits[worker] = true;
        const std::uint64_t id = round * 10 + worker;
        open[id] = round;
        choice.ready(static_cast<int>(worker), id, answers);
      } else {
        choice.sends(static_cast<int>(worker), answers);
      }
      for (const Answer& answer : answers) {
        const auto found = open.find(answer.id);
        ASSERT_NE(found, open.end()) << "answered twice";
        const std::vector<bool>& its = ready[found->second];
        EXPECT_EQ(answer.together, std::find(its.begin(), its.end(), false) == its.end());
        waits[static_cast<std::size_t>(answer.worker)] = false;
        open.erase(found);
      }
    }
    EXPECT_TRUE(open.empty()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace aiacc::kv

// Rounds between simulated ranks of several hosts: everybody has the same result, and no rank sends many messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "groupcomm/gradient/group_rounds.h"
#include "tests/sim_job.h"

namespace aiacc::gradient {
namespace {

constexpr std::size_t kTensorsOfARound = 200;

// A rank that contributes its bits, and answers when it is asked.
class Player final : public GroupRounds::Observer {
 public:
  Player(Group& group, std::uint64_t last) : rounds(group, *this), rank_(group.rank()), last_(last) { rounds.start(); }

  void begin(std::uint64_t round) {
    if (begun_ >= round || round > last_) return;
    begun_ = round;
    Word word;
    word.reset_to_empty(kTensorsOfARound);
    word.set_all_ready();
    word.clear_ready((static_cast<std::size_t>(rank_) + round) % kTensorsOfARound);
    word.set_number(Word::kAwaited, static_cast<std::uint64_t>(rank_) + 1);
    rounds.begin(round, word);
  }
  void asked(std::uint64_t round) override {
    EXPECT_EQ(round, begun_ + 1);
    begin(round);
  }
  void result(std::uint64_t round, const Word& merged) override {
    EXPECT_EQ(round, begun_);
    results.push_back(merged);
    if (initiates) begin(round + 1);
  }
  void rounds_failed(const std::exception_ptr&) noexcept override {}

  GroupRounds rounds;
  std::vector<Word> results;
  bool initiates = false;

 private:
  int rank_;
  std::uint64_t last_;
  std::uint64_t begun_ = 0;
};

class RoundsOf : public testing::TestWithParam<std::pair<int, int>> {};  // hosts, ranks on each

TEST_P(RoundsOf, EverybodyHasTheSameResultWhoeverBegins) {
  constexpr std::uint64_t kRounds = 10;
  const auto [hosts, ranks] = GetParam();
  std::vector<std::uint32_t> places;
  for (int rank = 0; rank < hosts * ranks; ++rank) places.push_back(static_cast<std::uint32_t>(rank / ranks));
  sim::SimJob job(places, 7);
  std::vector<std::unique_ptr<Player>> players;
  for (auto& rank : job.ranks) players.push_back(std::make_unique<Player>(rank->context->world(), kRounds));
  Player& first = *players[players.size() * 2 / 3];
  first.initiates = true;
  first.begin(1);
  const auto all_done = [&] {
    return std::all_of(players.begin(), players.end(),
                       [](const auto& player) { return player->results.size() == kRounds; });
  };
  EXPECT_TRUE(job.world.run_while_not(all_done)) << job.world.recent();
  for (const auto& player : players) {
    ASSERT_EQ(player->results.size(), kRounds);
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const Word& merged = player->results[round - 1];
      EXPECT_EQ(merged, players[0]->results[round - 1]);
      EXPECT_EQ(merged.number(Word::kAwaited), players.size());
      for (std::size_t tensor = 0; tensor < kTensorsOfARound; ++tensor) {
        const std::size_t rank = (tensor + kTensorsOfARound - round) % kTensorsOfARound;
        EXPECT_EQ(merged.ready(tensor), rank >= players.size());
      }
    }
    EXPECT_LE(player->rounds.messages(), 8 * kRounds) << "128 ranks on 16 hosts";
    if (hosts == 1) {
      EXPECT_EQ(player->rounds.messages(), 0u);
    }
  }
  for (std::size_t rank = 0; rank < players.size(); ++rank) {
    Task<void> closing = players[rank]->rounds.close();
    closing.start();
    EXPECT_TRUE(job.world.run_while_not([&] { return closing.done(); }));
    closing.take();
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, RoundsOf,
                         testing::Values(std::pair(1, 1), std::pair(1, 2), std::pair(1, 8), std::pair(2, 1),
                                         std::pair(3, 2), std::pair(5, 1), std::pair(7, 3), std::pair(16, 8)));

}  // namespace
}  // namespace aiacc::gradient

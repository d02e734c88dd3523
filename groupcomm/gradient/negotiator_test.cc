#include "groupcomm/gradient/negotiator.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "groupcomm/gradient/negotiator_world_test.h"

namespace aiacc::gradient::test {
namespace {

std::vector<TensorRecord> letters(std::size_t count, std::uint64_t bytes = 10) {
  std::vector<TensorRecord> records;
  for (std::size_t id = 0; id < count; ++id)
    records.push_back({std::string(1, static_cast<char>('a' + id)), bytes, 1, true, "float32"});
  return records;
}

// A program in short: a small letter submits that tensor after 100 us, a capital one waits for it, '!' after a letter makes it
// not finite, '|' flushes and waits, '_' computes for 10 ms, '.' for 100 us, '+' before a letter only adds it, 'J' joins and '#'
// leaves.
Program program(std::string_view text) {
  Program steps;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '|') {
      steps.push_back({Step::Kind::kFlushAndWait, 0, {}});
    } else if (c == '_') {
      steps.push_back({Step::Kind::kCompute, 0, milliseconds(10)});
    } else if (c == '.') {
      steps.push_back({Step::Kind::kCompute, 0, microseconds(100)});
    } else if (c == 'J') {
      steps.push_back({Step::Kind::kJoin, 0, {}});
    } else if (c == '#') {
      steps.push_back({Step::Kind::kLeave, 0, {}});
    } else if (c == '!') {
      steps.back().kind = Step::Kind::kSubmitBad;
    } else if (c == '+') {
      steps.push_back({Step::Kind::kAdd, static_cast<std::size_t>(text[++at] - 'a'), {}});
    } else if (c < 'a') {
      steps.push_back({Step::Kind::kWait, static_cast<std::size_t>(c - 'A'), {}});
    } else {
      steps.push_back({Step::Kind::kCompute, 0, microseconds(100)});
      steps.push_back({Step::Kind::kSubmit, static_cast<std::size_t>(c - 'a'), {}});
    }
  }
  return steps;
}

std::string times(std::string_view text, int count) {
  std::string all;
  for (int time = 0; time < count; ++time) all += text;
  return all;
}

// Each tensor is a launch; two equal steps arm.
NegotiatorOptions single() {
  NegotiatorOptions options;
  options.round_bytes = 1000;
  options.fusion_bytes = 1;
  options.schedule_steps = 2;
  return options;
}

constexpr Delays kSoon{microseconds(10), microseconds(10)};

std::unique_ptr<World> ran(std::vector<std::string> programs, const NegotiatorOptions& options,
                           std::size_t tensors = 4) {
  std::vector<Program> parsed;
  for (const std::string& text : programs) parsed.push_back(program(text));
  auto world = std::make_unique<World>(letters(tensors), std::move(parsed), options, 1, kSoon);
  world->run();
  for (const std::string& fault : world->faults) ADD_FAILURE() << fault;
  return world;
}

std::vector<std::string> sorted(std::vector<std::string> lines) {
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(Negotiator, LaunchesWhatAllHaveSubmittedInTheOrderOfIndices) {
  NegotiatorOptions options = single();
  options.fusion_bytes = 20;
  const auto world = ran({"+a+b+c+dabcd|", "dcba|", "bdac|"}, options);
  EXPECT_EQ(world->log_text(), "[ab][cd]");
}

TEST(Negotiator, FusesOnlyTensorsOfOneKey) {
  std::vector<TensorRecord> records = letters(5);
  records[1].fusion_key = records[3].fusion_key = 2;
  NegotiatorOptions options = single();
  options.fusion_bytes = 1000;
  World world(records, {program("abcde|"), program("abcde|")}, options, 1, kSoon);
  world.run();
  EXPECT_EQ(world.log_text(), "[ace][bd]");
}

TEST(Negotiator, LaunchesWhileOthersAreStillToComeOnceThereIsEnough) {
  NegotiatorOptions options = single();
  options.round_bytes = 20;
  const auto world = ran({"+a+b+c+dab_cd|", "ab_cd|"}, options);
  EXPECT_EQ(world->log_text(), "[a][b][c][d]");
  // The names of both ranks, a and b, c and d, the flushes.
  EXPECT_LE(world->stats(0).rounds, 5U);
}

TEST(Negotiator, NeedsNoRoundInTheSteadyState) {
  const auto world = ran(std::vector<std::string>(4, times("abcd|_", 40)), single());
  const auto& rounds = world->rounds_at_waits();
  ASSERT_EQ(rounds.size(), 40U);
  EXPECT_EQ(rounds.back().second, rounds[3].second) << "after two equal steps and what their ends take";
  EXPECT_EQ(world->stats(0).steps, 2U);
  EXPECT_EQ(world->scheduled_launches(), 38U * 4U);
  EXPECT_EQ(world->stats(0).breaks, 0U);
}

TEST(Negotiator, BeginsOneRoundForEachUnitOfBytes) {
  NegotiatorOptions options = single();
  options.schedule_steps = -1;
  options.round_bytes = 60;  // of 240
  const auto world = ran(std::vector<std::string>(8, times("abcdefghijklmnopqrstuvwx|_", 20)), options, 24);
  // 4 of bytes a step; the last of them may be the flush, and the step's end is one more.
  EXPECT_LE(world->stats(0).rounds, 20U * (4 + 2) + 2);
  EXPECT_GE(world->stats(0).rounds, 20U * 4);
}

// The step ends when the last rank has flushed; only ranks that were named as awaited begin a round then.
TEST(Negotiator, EndsAStepOfManyRanksInFewRounds) {
  constexpr std::size_t kRanks = 64;
  constexpr int kSteps = 20;
  NegotiatorOptions options = single();
  options.schedule_steps = -1;
  options.linger = milliseconds(100);
  sim::Random random(1);
  std::vector<std::string> programs(kRanks);
  for (int step = 0; step < kSteps; ++step)
    for (std::string& text : programs)
      text += "a" + times(".", static_cast<int>(random.below(100))) + "|" + times("_", 3);
  const auto world = ran(programs, options);
  // One for the first rank that flushes, and the sum of 1/k for k up to 63, which is 4.7; by one order for each step.
  EXPECT_LE(static_cast<double>(world->stats(0).rounds) / kSteps, 7.0);
}

TEST(Negotiator, DoesNotWaitForAFlushOfARankThatComputes) {
  NegotiatorOptions options = single();
  options.schedule_steps = -1;
  // Rank 1 submits late, too little for a round, and computes for long; rank 0 waits for nothing else.
  const auto world = ran({"+aa|", "_a" + times("_", 100) + "|"}, options);
  EXPECT_LE(world->completed_at(0), milliseconds(10) + options.linger + microseconds(300));
}

TEST(Negotiator, LaunchesTheRestOnlineWhenTheOrderChanges) {
  const auto world = ran({times("abcd|", 5), times("abcd|", 3) + "_b_a_c_d|" + "abcd|"}, single());
  EXPECT_EQ(world->zeros(), 0U) << "a tensor that comes late is waited for";
  EXPECT_EQ(world->stats(0).breaks, 0U) << "each head came within 50 ms";
  NegotiatorOptions options = single();
  options.head_of_line = milliseconds(5);
  const auto impatient = ran({times("abcd|", 5), times("abcd|", 3) + "_b_a_c_d|" + "abcd|"}, options);
  EXPECT_EQ(impatient->stats(0).breaks, 1U);
}

TEST(Negotiator, AddsAGradientThatComesAfterTheCutByAFollowUp) {
  // Rank 1 waits for b before it submits a, which rank 0 has launched.
  const auto world = ran({times("ab|", 3), times("ab|", 2) + "_bBa|"}, single());
  EXPECT_EQ(world->log_text(), "[a][b][a][b]s[a]s[b]+[a]");
  EXPECT_EQ(world->zeros(), 1U);
  EXPECT_EQ(world->stats(1).follow_ups, 1U);
}

TEST(Negotiator, TakesAnOwedGradientAtOnce) {
  // Rank 0 does nothing but wait for a; rank 1 submits it and computes for a second.
  const auto world = ran({times("ab|", 3), times("ab|", 2) + "_bBa" + times("_", 100) + "|"}, single());
  EXPECT_EQ(world->stats(0).follow_ups, 1U);
  EXPECT_LE(world->completed_at(0), milliseconds(12));
}

TEST(Negotiator, KeepsAGradientThatARankLeftOutForItsNextStep) {
  const auto world = ran({times("ab|", 3), times("ab|", 2) + "_b|_a|"}, single());
  EXPECT_EQ(world->log_text(), "[a][b][a][b]s[a]s[b]+[a]");
}

TEST(Negotiator, BreaksForATensorThatTheScheduleDoesNotHave) {
  const auto world = ran({times("ab|", 3) + "cab|", times("ab|", 3) + "abc|"}, single());
  EXPECT_EQ(world->stats(0).breaks, 1U);
  EXPECT_EQ(world->stats(1).zeros, 0U);
}

TEST(Negotiator, ArmsLessAndLessOftenWhenStepsGoOnChanging) {
  // Every tenth step is different. Armed after 2, 4 and 8 equal steps; never after 16.
  std::string text;
  for (int period = 0; period < 20; ++period) text += times("ab|", 9) + "abc|";
  const auto world = ran({text, text}, single());
  EXPECT_EQ(world->stats(0).breaks, 3U);
}

TEST(Negotiator, SettlesOnlineWhenTwoGraphsAlternate) {
  const std::string text = times("ab|abc|", 30);
  const auto world = ran({text, text}, single());
  EXPECT_EQ(world->stats(0).breaks, 0U);
  EXPECT_EQ(world->scheduled_launches(), 0U);
}

TEST(Negotiator, KeepsAScheduleWhenARankHasFlushedMoreOftenThanOthers) {
  const auto world = ran({"ab|" + times("ab|", 10), "a|_b|" + times("ab|", 10)}, single());
  EXPECT_EQ(world->stats(0).breaks, 0U);
  EXPECT_GT(world->scheduled_launches(), 10U);
}

TEST(Negotiator, SchedulesOnlySums) {
  std::vector<TensorRecord> records = letters(2);
  records[1].sum = false;
  World world(records, {program(times("ab|", 20)), program(times("ab|", 20))}, single(), 1, kSoon);
  world.run();
  EXPECT_EQ(world.faults, std::vector<std::string>{});
  EXPECT_EQ(world.scheduled_launches(), 0U);
}

TEST(Negotiator, TellsAllRanksOfAGradientThatIsNotFinite) {
  const auto online = ran({"+aa|", "a!|"}, single());
  EXPECT_EQ(sorted(online->told),
            (std::vector<std::string>{"rank 0: a of rank 1 is not finite", "rank 1: a of rank 1 is not finite"}));
  const auto scheduled =
      ran({times("ab|", 30), times("ab|", 9) + "ab!|" + times("ab|", 9) + "ab!|" + times("ab|", 10)}, single());
  EXPECT_GE(scheduled->told.size(), 4U);
  EXPECT_EQ(scheduled->stats(0).breaks, 2U) << "the schedule is used again after two steps, not four";
  EXPECT_EQ(scheduled->zeros(), 0U);
  const auto& rounds = scheduled->rounds_at_waits();
  EXPECT_EQ(rounds.back().second, rounds[24].second);
}

TEST(Negotiator, CountsARankThatJoinedAsReady) {
  const auto world = ran({times("ab|", 6) + "J", times("ab|", 3) + "J", times("ab|", 5) + "J"}, single());
  EXPECT_EQ(world->last_joined(), 0);
  EXPECT_EQ(world->stats(0).follow_ups, 0U);
  // Rank 0 has launched a when rank 1 joins: rank 1 owes nothing for its zeros.
  const auto late = ran({times("ab|", 6) + "J", times("ab|", 3) + "_J"}, single());
  EXPECT_EQ(late->stats(0).breaks, 1U);
  EXPECT_EQ(late->stats(1).zeros, 0U);
  EXPECT_EQ(late->stats(0).follow_ups, 0U);
  const auto again = ran({times("ab|", 6) + "J" + times("ab|", 5), times("ab|", 3) + "J" + times("ab|", 5)}, single());
  EXPECT_GT(again->scheduled_launches(), 0U);
}

TEST(Negotiator, JoinsBehindWhatIsSubmittedAndNobodyWaitsFor) {
  for (const std::string& before : {std::string(), times("ab|", 1), times("ab|", 6)}) {
    const auto all = ran({before + "abJ" + before, before + "abJ" + before, before + "baJ" + before}, single());
    EXPECT_GE(all->last_joined(), 0);
    const auto some = ran({before + "abJab|", before + "aJab|", before + "Jba|"}, single());
    EXPECT_GE(some->last_joined(), 0);
  }
}

TEST(Negotiator, NamesTensorAndRanksOfAMismatchOnEveryRank) {
  std::vector<std::unique_ptr<Negotiator>> ranks;
  std::vector<std::vector<std::byte>> payloads;
  for (int rank = 0; rank < 2; ++rank) {
    NegotiatorOptions options = single();
    options.rank = rank;
    options.ranks = 2;
    ranks.push_back(std::make_unique<Negotiator>(options));
    ranks.back()->add({"conv.weight", rank == 0 ? 4U : 8U, 1, true, rank == 0 ? "1 element" : "2 elements"});
    ranks.back()->ready(0, Instant{});
    ranks.back()->flush(Instant{});
    Action action;
    ASSERT_TRUE(ranks.back()->next(action));
    ASSERT_EQ(action.kind, Action::Kind::kBegin);
    const Word word = *action.word;
    ranks.back()->result(1, word, Instant{});
    ASSERT_TRUE(ranks.back()->next(action));
    ASSERT_EQ(action.kind, Action::Kind::kExchange);
    payloads.emplace_back(action.payload.begin(), action.payload.end());
  }
  for (const auto& negotiator : ranks) {
    negotiator->exchanged(std::vector<std::span<const std::byte>>{payloads[0], payloads[1]}, Instant{});
    Action action;
    ASSERT_TRUE(negotiator->next(action));
    ASSERT_EQ(action.kind, Action::Kind::kFailed);
    EXPECT_EQ(action.error->code(), Code::kMismatch);
    EXPECT_EQ(action.error->message(),
              "gradient 'conv.weight' is 2 elements (8 bytes) on rank 1 and 1 element (4 bytes) on rank 0; give "
              "different tensors "
              "different names on all ranks");
    EXPECT_TRUE(negotiator->ended());
    EXPECT_EQ(negotiator->deadline(), kNever);
    negotiator->tick(kNever);
    EXPECT_FALSE(negotiator->next(action));
  }
}

TEST(Negotiator, RefusesAnExchangeThatIsNotValid) {
  Negotiator negotiator(single());
  negotiator.add(letters(1)[0]);
  negotiator.ready(0, Instant{});
  negotiator.flush(Instant{});
  Action action;
  ASSERT_TRUE(negotiator.next(action));
  const Word word = *action.word;
  negotiator.result(1, word, Instant{});
  const std::vector<std::byte> junk(7, std::byte{0xff});
  negotiator.exchanged(std::vector<std::span<const std::byte>>{junk}, Instant{});
  while (negotiator.next(action) && action.kind != Action::Kind::kFailed) {
  }
  ASSERT_EQ(action.kind, Action::Kind::kFailed);
  EXPECT_EQ(action.error->code(), Code::kProtocol);
}

TEST(Negotiator, FindsRanksWithOtherSettings) {
  std::vector<std::unique_ptr<Negotiator>> ranks;
  std::vector<Word> words;
  for (std::uint64_t fusion : {10, 20}) {
    NegotiatorOptions options = single();
    options.rank = static_cast<int>(ranks.size());
    options.ranks = 2;
    options.fusion_bytes = fusion;
    ranks.push_back(std::make_unique<Negotiator>(options));
    ranks.back()->asked(1, Instant{});
    Action action;
    ASSERT_TRUE(ranks.back()->next(action));
    words.push_back(*action.word);
  }
  words[0].merge(words[1]);
  for (const auto& negotiator : ranks) {
    negotiator->result(1, words[0], Instant{});
    Action action;
    ASSERT_TRUE(negotiator->next(action));
    ASSERT_EQ(action.kind, Action::Kind::kFailed);
    EXPECT_EQ(action.error->code(), Code::kMismatch);
  }
}

TEST(Negotiator, ReportsOnAllRanksWhoLacksWhat) {
  World world(letters(3), {program("+a+b+cabc|"), program("abc|"), program("+aa" + times("_", 500) + "bc|")}, single(),
              1, kSoon);
  NegotiatorOptions options = single();
  options.stall = std::chrono::seconds(2);
  World reporting(letters(3), {program("+a+b+cabc|"), program("abc|"), program("+aa" + times("_", 500) + "bc|")},
                  options, 1, kSoon);
  world.stops_at_stall = reporting.stops_at_stall = false;
  world.run();
  reporting.run();
  EXPECT_EQ(world.stalls(), std::vector<std::string>{}) << "60 s";
  EXPECT_EQ(reporting.stalls(), std::vector<std::string>(
                                    6,
                                    "after a wait of 2.0 s gradient 'b' is submitted by ranks 0, 1 and not by rank 2; "
                                    "gradient 'c' is submitted by "
                                    "ranks 0, 1 and not by rank 2; every rank must submit the same gradients, or join"))
      << "at 2 s and at 4 s, on three ranks";
  EXPECT_EQ(reporting.faults, std::vector<std::string>{});
}

TEST(Negotiator, EndsOnAllRanksWhenOneLeaves) {
  for (const char* leaver : {"ab|ab|#", "ab|ab|ab|ab|a#"}) {
    World world(letters(2), {program(times("ab|", 9)), program(leaver)}, single(), 1, kSoon);
    world.run();
    EXPECT_EQ(sorted(world.told), (std::vector<std::string>{"rank 0: rank 1 left", "rank 1: rank 1 left"}));
  }
}

TEST(Negotiator, SaysNothingMoreAfterTheRoundsHaveFailed) {
  World world(letters(2), {program(times("ab|", 900)), program(times("ab|", 900)), program(times("ab|", 900))},
              single(), 1, kSoon);
  world.kill(1, milliseconds(40));
  world.run();
  EXPECT_EQ(world.faults, std::vector<std::string>{});
  EXPECT_EQ(world.failed_ranks(), 2U);
  EXPECT_EQ(world.failure(), "a rank was lost");
}

TEST(Negotiator, NegotiatesWithItselfAlone) {
  const auto world = ran({times("ab|", 10) + "ba|b|a|J"}, single());
  EXPECT_EQ(world->last_joined(), 0);
}

TEST(Negotiator, LaunchesByPriorityAndRecordsThat) {
  std::vector<TensorRecord> records = letters(4);
  const std::int32_t priorities[] = {1, 3, 0, 3};
  for (std::size_t id = 0; id < records.size(); ++id) records[id].priority = priorities[id];
  for (const std::size_t in_flight : {1, 2, 5}) {
    World world(records, {program(times("abcd|", 4)), program(times("dcba|", 4))}, single(), 1, kSoon);
    world.in_flight = in_flight;
    world.run();
    for (const std::string& fault : world.faults) ADD_FAILURE() << fault;
    EXPECT_EQ(world.log_text(), times("[b][d][a][c]", 2) + times("s[b]s[d]s[a]s[c]", 2));
  }
}

// 60 ms after the others, behind which three of them wait: longer than a unit may be late, were there not the reductions before it.
TEST(Negotiator, WaitsForAHighPriorityWhileEarlierLaunchesAreAtWork) {
  std::vector<TensorRecord> records = letters(8);
  records.back().priority = 1;
  NegotiatorOptions options = single();
  options.round_bytes = 10;
  const Delays slow{milliseconds(30), milliseconds(30)};
  World world(records, {program(times("abcdefg______h|", 4)), program(times("abcdefg______h|", 4))}, options, 1, slow);
  world.bound = milliseconds(1000);
  world.in_flight = 1;
  world.run();
  for (const std::string& fault : world.faults) ADD_FAILURE() << fault;
  EXPECT_EQ(world.stats(0).breaks, 0u) << world.log_text();
  // In the first step the ranks exchange names.
  EXPECT_EQ(world.log_text(),
            "[a][b][c][d][e][f][g][h]"
            "[a][b][c][h][d][e][f][g]" +
                times("s[a]s[b]s[c]s[d]s[e]s[h]s[f]s[g]", 2));
}

}  // namespace
}  // namespace aiacc::gradient::test

// Engines whose ranks end at different times, over random programs and at chosen moments (engine_leaving_world_test.h).
#include <cstdlib>  // GRADIENT_ENGINES=10000 runs as many worlds, some 20 ms each

#include "groupcomm/gradient/engine_leaving_world_test.h"

namespace aiacc::gradient::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

const std::vector<std::vector<std::uint32_t>> kPlacements = {{0, 0},    {0, 0, 0},    {0, 1},       {0, 1, 2},
                                                             {0, 0, 1}, {0, 0, 1, 1}, {0, 0, 1, 2}, {0, 1, 1, 2, 2}};

enum class Ends { kInOrder, kAnyhow, kJoined, kFrozen, kKilled };

RankPlan random_rank(sim::Random& random, Ends ends, int steps) {
  RankPlan rank;
  rank.steps = steps;
  if (random.below(4) == 0) rank.most_gap_us = 400;
  if (random.below(3) == 0) rank.looks_one_in = 6;
  rank.before_free = microseconds(random.below(3) == 0 ? random.below(3000) : random.below(60));
  if (ends == Ends::kInOrder) return rank;
  if (random.below(3) == 0) rank.steps += static_cast<int>(random.below(3)) - 1;
  if (ends == Ends::kJoined) {
    rank.joins = random.below(10) != 0;
    rank.steps = static_cast<int>(random.below(static_cast<std::uint64_t>(steps) + 1));
  }
  if (ends != Ends::kJoined && random.below(6) == 0) rank.waits = false;
  return rank;
}

LeavingPlan random_plan(std::uint64_t seed, Ends ends) {
  sim::Random random(seed * 8 + static_cast<std::uint64_t>(ends));
  LeavingPlan plan;
  plan.seed = seed;
  plan.hosts = kPlacements[random.below(kPlacements.size())];
  plan.schedule_steps = random.below(3) == 0 ? -1 : 1 + static_cast<int>(random.below(2));
  plan.in_flight = 1 + static_cast<int>(random.below(4));
  plan.fusion_bytes = random.below(2) == 0 ? 2000 : 20'000;
  plan.priorities = random.below(3) == 0;
  const std::size_t tensors = 1 + random.below(6);
  for (std::size_t tensor = 0; tensor < tensors; ++tensor)
    plan.counts.push_back(random.below(8) == 0 ? 0 : random.below(8) == 0 ? 20'000 : 1 + random.below(900));
  for (std::size_t tensor = 0; tensor < tensors; ++tensor)
    if (random.below(4) == 0) plan.tables.insert(tensor);
  const int steps = 1 + static_cast<int>(random.below(7));
  for (std::size_t rank = 0; rank < plan.hosts.size(); ++rank) plan.ranks.push_back(random_rank(random, ends, steps));
  // Two such ranks could wait for each other.
  if (ends != Ends::kInOrder) plan.ranks[random.below(plan.ranks.size())].left_out_one_in = random.below(3) * 4;
  RankPlan& one = plan.ranks[random.below(plan.ranks.size())];
  const auto when = microseconds(random.below(300 * static_cast<std::uint64_t>(steps)));
  if (ends == Ends::kFrozen) {
    one.frozen = when;
    one.frozen_for = random.below(2) == 0 ? milliseconds(1 + random.below(3000)) : milliseconds(1 + random.below(5));
  }
  if (ends == Ends::kKilled) one.killed = when;
  return plan;
}

struct Seen {
  std::uint64_t well = 0, failed = 0, joined = 0, refused_joins = 0, scheduled = 0;
};

// Of a plan: what its engines do beside the sums.
enum class Extras { kNone, kAll };

void add_extras(LeavingPlan& plan) {
  sim::Random random(plan.seed * 31 + 7);
  plan.tunes = random.below(2) == 0;
  constexpr WireType kWires[] = {WireType::kFloat32, WireType::kFloat16, WireType::kBFloat16, WireType::kMixed};
  plan.wire = kWires[random.below(4)];
  plan.nan_check = random.below(2) == 0;
  if (plan.nan_check && random.below(3) != 0) plan.not_finite_one_in = 4 + random.below(40);
}

void run_engines(std::uint64_t seed, Ends ends, Extras extras, Seen& seen) {
  LeavingPlan plan = random_plan(seed, ends);
  if (extras == Extras::kAll) add_extras(plan);
  LeavingWorld world(std::move(plan));
  world.run();
  for (const std::string& fault : world.faults)
    ADD_FAILURE() << "seed " << seed << ", ends " << static_cast<int>(ends) << ": " << fault;
  for (const auto& rank : world.ranks) {
    for (const auto& of : rank->submitted)
      for (const Outcome& outcome : of) ++(outcome.ok() ? seen.well : seen.failed);
    seen.joined += rank->last_joined ? 1 : 0;
    seen.refused_joins += rank->refused_join ? 1 : 0;
    seen.scheduled += rank->scheduled_steps;
  }
}

Seen run_random(Ends ends, Extras extras = Extras::kNone) {
  const char* text = std::getenv("GRADIENT_ENGINES");  // NOLINT(concurrency-mt-unsafe)
  const std::uint64_t usual = extras == Extras::kNone ? 100 : 60;
  const std::uint64_t worlds = text == nullptr ? usual : std::strtoull(text, nullptr, 10);
  Seen seen;
  for (std::uint64_t seed = 1; seed <= worlds && !testing::Test::HasFailure(); ++seed)
    run_engines(seed, ends, extras, seen);
  testing::Test::RecordProperty("well", static_cast<int>(seen.well));
  testing::Test::RecordProperty("failed", static_cast<int>(seen.failed));
  EXPECT_GT(seen.well, worlds);
  if (ends != Ends::kJoined && extras == Extras::kNone) {
    EXPECT_GT(seen.scheduled, worlds / 4);
  }
  return seen;
}

TEST(EngineLeaving, NothingIsLostWhereRanksFreeTheirEnginesAfterTheirLastWait) {
  EXPECT_EQ(run_random(Ends::kInOrder).failed, 0u);
}

TEST(EngineLeaving, OnlyWhatNeedsARankFailsOnceItHasFreedItsEngine) {
  EXPECT_GT(run_random(Ends::kAnyhow).failed, 10u);
}

TEST(EngineLeaving, RanksThatJoinGiveZeros) {
  const Seen seen = run_random(Ends::kJoined);
  EXPECT_GT(seen.joined, 10u);
  EXPECT_GT(seen.refused_joins, 10u);
}

TEST(EngineLeaving, AndWhileARankStandsStill) { run_random(Ends::kFrozen); }

class EngineLeavingWith : public testing::TestWithParam<Ends> {};
INSTANTIATE_TEST_SUITE_P(Ends, EngineLeavingWith,
                         testing::Values(Ends::kInOrder, Ends::kAnyhow, Ends::kJoined, Ends::kFrozen, Ends::kKilled));

TEST_P(EngineLeavingWith, TuningShortWiresAndTheCheckOfResults) { run_random(GetParam(), Extras::kAll); }

// The allreduce that runs then may still end well, with others behind it that never begin.
TEST(EngineLeaving, EveryWaitEndsWhereTheGroupIsAborted) {
  for (std::uint64_t event = 0; event < 300; ++event) {
    LeavingPlan plan;
    plan.hosts = {0, 1};
    plan.seed = event;
    plan.counts = {300, 300, 300};
    plan.in_flight = 1;
    plan.fusion_bytes = 1200;
    plan.ranks = std::vector<RankPlan>(2);
    LeavingWorld world(plan);
    world.job.world.at_event(world.job.world.events() + event, [&world] {
      const Error why(Code::kAborted, "rank 0 has ended the group", 0);
      world.job[0].context->world().abort(std::make_exception_ptr(why));
    });
    world.run();
    for (const std::string& fault : world.faults)
      EXPECT_EQ(fault.find(" still "), std::string::npos) << "event " << event << ": " << fault;
  }
}

// A second thread may wait for the same step.
TEST(EngineLeaving, EachWaitIsToldOfAStepThatWasNotReduced) {
  sim::SimJob job({0, 1});
  std::vector<std::shared_ptr<Engine>> engines;
  for (int rank = 0; rank < 2; ++rank) {
    EngineOptions options;
    options.timeout = seconds(20);
    engines.push_back(std::make_shared<Engine>(job[rank].context->world(), options));
    engines.back()->start();
    TensorOrder order;
    order.name = "tensor";
    order.count = 10;
    std::uint32_t number = 0;
    engines.back()->add({&order, 1}, &number);
  }
  engines[0]->submit(0, nullptr, nullptr, nullptr);
  std::vector<Task<void>> closing;
  closing.push_back(engines[1]->close(job[1].stop));
  closing.back().start();
  for (int turn = 0; turn < 3; ++turn) {
    Engine::Wait wait(*engines[0], false);
    job[0].lane.start(wait);
    ASSERT_TRUE(job.world.run_while_not([&] { return wait.done(); }));
    ASSERT_TRUE(wait.why) << "wait " << turn;
    EXPECT_EQ(as_error(wait.why).code(), Code::kAborted);
    EXPECT_EQ(as_error(wait.why).peer(), 1);
  }
  closing.push_back(engines[0]->close(job[0].stop));
  closing.back().start();
  EXPECT_TRUE(job.world.run_while_not([&] { return closing[0].done() && closing[1].done(); }));
}

TEST(EngineLeaving, EveryWaitEndsWhereARankDies) { EXPECT_GT(run_random(Ends::kKilled).failed, 10u); }

}  // namespace
}  // namespace aiacc::gradient::test

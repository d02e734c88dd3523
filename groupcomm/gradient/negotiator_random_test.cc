// Random training programs in the world of negotiator_world_test.h. Each seed is a number of ranks, tensors, speeds, delays,
// and a kind of training that departs from its schedule in its own way.
#include <gtest/gtest.h>

#include <cstdlib>  // GRADIENT_SCHEDULES=100000 runs as many; it takes a minute or two

#include "groupcomm/gradient/negotiator_world_test.h"

namespace aiacc::gradient::test {
namespace {

enum class Training { kStable, kReordered, kMissing, kDynamic, kAlternating, kJoin, kWaits, kEverything, kKinds };

struct Draw {
  explicit Draw(std::uint64_t seed) : random(seed) {}
  sim::Random random;
  std::size_t below(std::size_t bound) { return random.below(bound); }
  bool one_in(std::size_t n) { return random.below(n) == 0; }
  Duration time(std::int64_t least_us, std::int64_t most_us) {
    return microseconds(least_us +
                        static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most_us - least_us + 1))));
  }
};

enum class With { kNothing, kTuning, kPriorities };

std::vector<TensorRecord> random_tensors(Draw& draw, std::size_t count) {
  std::vector<TensorRecord> tensors;
  for (std::size_t id = 0; id < count; ++id)
    tensors.push_back({std::string(1, static_cast<char>('a' + id)), 1 + draw.below(100), draw.one_in(4) ? 2U : 1U,
                       !draw.one_in(40), "float32"});
  return tensors;
}

// One step of all ranks. `tensors` is what it reduces.
struct StepPlan {
  std::vector<std::size_t> tensors;
  std::size_t waiter = SIZE_MAX;     // a rank that waits for single tensors
  std::size_t reorderer = SIZE_MAX;  // a rank with another order; SIZE_MAX - 1: all
  std::size_t misser = SIZE_MAX;     // a rank that leaves some to its next step
  std::size_t bad = SIZE_MAX;        // a rank with a gradient that is not finite
  bool flush_only = false;
};

void shuffle(std::vector<std::size_t>& list, Draw& draw) {
  for (std::size_t at = list.size(); at > 1; --at) std::swap(list[at - 1], list[draw.below(at)]);
}

// The programs of all ranks and what they still owe at the end.
class Programs {
 public:
  Programs(Draw& draw, std::size_t ranks, std::size_t tensors) : draw_(draw), programs(ranks), behind_(ranks) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      speed_.push_back(draw.one_in(6) ? 20 : 1 + static_cast<std::int64_t>(draw.below(3)));
      std::vector<std::size_t> order(tensors);
      for (std::size_t id = 0; id < tensors; ++id) order[id] = id;
      if (draw.one_in(4)) shuffle(order, draw);
      if (!draw.one_in(4))
        for (std::size_t id : order) programs[rank].push_back({Step::Kind::kAdd, id, {}});
    }
  }

  void step(std::size_t rank, const StepPlan& plan) {
    std::vector<std::size_t> order = plan.tensors;
    for (std::size_t id : behind_[rank]) order.push_back(id);
    std::vector<std::size_t> still_behind;
    Program& program = programs[rank];
    if (plan.reorderer == rank || plan.reorderer == SIZE_MAX - 1) shuffle(order, draw_);
    // A tensor that is behind is submitted once more than the others, in a later step.
    std::vector<std::size_t> once;
    for (std::size_t id : order) {
      const bool again = std::find(once.begin(), once.end(), id) != once.end();
      if (again || (plan.misser == rank && draw_.one_in(3) && behind_[rank].empty())) {
        still_behind.push_back(id);
      } else {
        once.push_back(id);
      }
    }
    behind_[rank] = still_behind;
    const std::size_t bad = plan.bad == rank && !once.empty() ? once[draw_.below(once.size())] : SIZE_MAX;
    for (std::size_t id : once) {
      program.push_back({Step::Kind::kCompute, 0, draw_.time(1, 300) * speed_[rank]});
      program.push_back({id == bad ? Step::Kind::kSubmitBad : Step::Kind::kSubmit, id, {}});
      if (plan.waiter == rank && draw_.one_in(2)) program.push_back({Step::Kind::kWait, id, {}});
    }
    program.push_back({plan.flush_only ? Step::Kind::kFlush : Step::Kind::kFlushAndWait, 0, {}});
    program.push_back({Step::Kind::kCompute, 0, draw_.time(1, 500)});
  }

  // What was left out is submitted, without a step of the others.
  void catch_up() {
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      for (std::size_t id : behind_[rank]) programs[rank].push_back({Step::Kind::kSubmit, id, {}});
      behind_[rank].clear();
      programs[rank].push_back({Step::Kind::kFlushAndWait, 0, {}});
    }
  }

 private:
  Draw& draw_;

 public:
  std::vector<Program> programs;

 private:
  std::vector<std::vector<std::size_t>> behind_;
  std::vector<std::int64_t> speed_;
};

std::vector<std::size_t> up_to(std::size_t count) {
  std::vector<std::size_t> list(count);
  for (std::size_t id = 0; id < count; ++id) list[id] = id;
  return list;
}

// Whether the programs end if the n-th submissions of a tensor on all ranks complete each other at once. Which programs do does
// not depend on time, as with any network of processes that only wait for each other.
bool can_end(const std::vector<Program>& programs, std::size_t tensors) {
  const std::size_t ranks = programs.size();
  std::vector<std::size_t> at(ranks);
  std::vector<bool> joined(ranks);
  std::vector<std::vector<bool>> outstanding(ranks, std::vector<bool>(tensors));
  for (bool went_on = true; went_on;) {
    went_on = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      while (at[rank] < programs[rank].size() && !joined[rank]) {
        const Step& step = programs[rank][at[rank]];
        const auto any = [&] { return std::count(outstanding[rank].begin(), outstanding[rank].end(), true) != 0; };
        const bool submits = step.kind == Step::Kind::kSubmit || step.kind == Step::Kind::kSubmitBad;
        if ((submits || step.kind == Step::Kind::kWait) && outstanding[rank][step.tensor]) break;
        if (step.kind == Step::Kind::kFlushAndWait && any()) break;
        if (submits) outstanding[rank][step.tensor] = true;
        if (step.kind == Step::Kind::kJoin) joined[rank] = true;
        ++at[rank];
        went_on = true;
      }
    }
    for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
      bool all = true, some = false;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        all = all && (joined[rank] || outstanding[rank][tensor]);
        some = some || outstanding[rank][tensor];
      }
      if (!all || !some) continue;
      for (std::size_t rank = 0; rank < ranks; ++rank) outstanding[rank][tensor] = false;
      went_on = true;
    }
    if (std::count(joined.begin(), joined.end(), false) == 0) joined.assign(ranks, false), went_on = true;
    bool ended = true;
    for (std::size_t rank = 0; rank < ranks; ++rank) ended = ended && at[rank] == programs[rank].size();
    if (ended) return true;
  }
  return false;
}

struct Outcome {
  std::uint64_t worlds = 0;
  std::uint64_t votes = 0, breaks = 0, scheduled = 0, zeros = 0, follow_ups = 0, lost = 0, overtaken = 0;
};

void run_one(std::uint64_t seed, With with, Outcome& outcome) {
  Draw draw(seed);
  const std::size_t ranks = 1 + draw.below(6);
  const std::size_t tensors = 1 + draw.below(8);
  const auto training = static_cast<Training>(draw.below(static_cast<std::size_t>(Training::kKinds)));
  std::vector<TensorRecord> records = random_tensors(draw, tensors);
  NegotiatorOptions options;
  options.round_bytes = 1 + draw.below(300);
  options.fusion_bytes = draw.one_in(3) ? 1 : 1 + draw.below(300);
  options.schedule_steps = draw.one_in(10) ? -1 : 1 + static_cast<int>(draw.below(3));
  options.head_of_line = draw.one_in(2) ? milliseconds(50) : microseconds(300);
  options.tunes = with == With::kTuning;
  const auto is = [&](Training kind) {
    return training == kind || (training == Training::kEverything && draw.one_in(2));
  };
  Programs programs(draw, ranks, tensors);
  const std::size_t epochs = is(Training::kJoin) ? 1 + draw.below(3) : 1;
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    const std::size_t steps = 4 + draw.below(20);
    for (std::size_t number = 0; number < steps; ++number) {
      StepPlan plan;
      plan.tensors = up_to(tensors);
      if (is(Training::kDynamic) && draw.one_in(5)) plan.tensors.resize(1 + draw.below(tensors));
      if (is(Training::kDynamic) && number < steps / 2) plan.tensors.resize((plan.tensors.size() + 1) / 2);
      if (is(Training::kAlternating) && number % 2 == 1) plan.tensors.resize((plan.tensors.size() + 1) / 2);
      if (is(Training::kReordered) && draw.one_in(4))
        plan.reorderer = draw.one_in(5) ? SIZE_MAX - 1 : draw.below(ranks);
      if (is(Training::kMissing) && draw.one_in(4)) plan.misser = draw.below(ranks);
      if (is(Training::kWaits) && draw.one_in(4)) {
        plan.waiter = draw.below(ranks);
        plan.reorderer = draw.one_in(2) ? plan.waiter : SIZE_MAX;
      }
      if (draw.one_in(25)) plan.bad = draw.below(ranks);
      if (training == Training::kStable && draw.one_in(4)) plan.flush_only = true;
      for (std::size_t rank = 0; rank < ranks; ++rank) programs.step(rank, plan);
    }
    programs.catch_up();
    if (epochs > 1) {
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        StepPlan plan;
        plan.tensors = up_to(tensors);
        for (std::size_t more = draw.below(3); more > 0; --more) programs.step(rank, plan);
        programs.programs[rank].push_back({Step::Kind::kJoin, 0, {}});
      }
    }
  }
  if (!can_end(programs.programs, tensors)) return;
  ++outcome.worlds;
  const Delays delays{microseconds(5), draw.time(6, 500)};
  if (with == With::kPriorities)
    for (TensorRecord& record : records) record.priority = static_cast<std::int32_t>(draw.below(4)) - 1;
  World world(records, std::move(programs.programs), options, seed + 1, delays);
  world.votes_come_first = seed % 3 != 0;
  world.bound = 2 * options.linger + 20 * delays.most;
  if (with == With::kPriorities) {
    world.in_flight = 1 + draw.below(3);
    world.bound += 2 * tensors * delays.most;  // one launch after another, with a round at the same time
  }
  const bool dies = draw.one_in(12);
  if (dies) world.kill(draw.below(ranks), draw.time(0, 200'000));
  world.run();
  if (dies) {
    ++outcome.lost;
    if (world.failed_ranks() != ranks - 1) world.faults.push_back("a rank does not end after another was lost");
  }
  for (const std::string& fault : world.faults)
    ADD_FAILURE() << "seed " << seed << ", training " << static_cast<int>(training) << ", " << ranks
                  << " ranks: " << fault;
  const NegotiatorStats stats = world.stats(0);
  outcome.votes += world.votes();
  outcome.breaks += stats.breaks;
  outcome.follow_ups += stats.follow_ups;
  outcome.scheduled += world.scheduled_launches();
  outcome.zeros += world.zeros();
  outcome.overtaken += world.overtaken();
}

void run_random(With with) {
  const char* text = std::getenv("GRADIENT_SCHEDULES");  // NOLINT(concurrency-mt-unsafe)
  const std::uint64_t worlds = text == nullptr ? 1500 : std::strtoull(text, nullptr, 10);
  Outcome outcome;
  for (std::uint64_t seed = 0; seed < worlds && !testing::Test::HasFailure(); ++seed) run_one(seed, with, outcome);
  const auto record = [](const char* name, std::uint64_t count) {
    testing::Test::RecordProperty(name, static_cast<int>(count));
  };
  record("worlds", outcome.worlds);
  record("votes", outcome.votes);
  record("breaks", outcome.breaks);
  record("scheduled_launches", outcome.scheduled);
  record("zeros", outcome.zeros);
  record("follow_ups", outcome.follow_ups);
  record("lost_ranks", outcome.lost);
  record("overtaken", outcome.overtaken);
  // The programs do reach what they are for.
  EXPECT_GT(outcome.breaks, worlds / 2);
  EXPECT_GT(outcome.scheduled, worlds);
  EXPECT_GT(outcome.zeros, worlds / 10);
  EXPECT_GT(outcome.follow_ups, worlds / 20);
  EXPECT_EQ(outcome.votes > worlds, with == With::kTuning);
  EXPECT_EQ(outcome.overtaken > worlds / 20, with == With::kPriorities);
}

TEST(NegotiatorRandom, ReducesEachGradientOnceOnAllRanksInOneOrder) { run_random(With::kNothing); }

TEST(NegotiatorRandom, DoesSoWhileTheFusionSizeChangesBetweenPasses) { run_random(With::kTuning); }

TEST(NegotiatorRandom, LaunchesTheHighestPriorityThatWaits) { run_random(With::kPriorities); }

}  // namespace
}  // namespace aiacc::gradient::test

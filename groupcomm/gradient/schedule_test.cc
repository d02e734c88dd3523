#include "groupcomm/gradient/schedule.h"

#include <gtest/gtest.h>

#include <numeric>

namespace aiacc::gradient {
namespace {

using std::chrono::milliseconds;
using Indices = std::vector<std::uint32_t>;

TensorTable table_of(std::size_t count, std::uint64_t bytes) {
  TensorTable table;
  std::vector<std::vector<TensorRecord>> records(1);
  for (std::size_t id = 0; id < count; ++id) records[0].push_back({std::to_string(id), bytes, id % 2, true, ""});
  std::vector<std::uint32_t> mapped;
  table.append(records, mapped);
  return table;
}

std::vector<Indices> units(Schedule& schedule) {
  std::vector<Indices> all;
  for (std::size_t unit = 0; unit < schedule.units(); ++unit) {
    all.emplace_back(schedule.head().begin(), schedule.head().end());
    schedule.advance();
  }
  return all;
}

bool record_step(ScheduleRecorder& recorder, const Indices& tensors) { return recorder.result(tensors, false, true); }

TEST(ScheduleRecorder, ArmsAfterEqualStepsWhateverTheirOrder) {
  ScheduleRecorder recorder(3, 100);
  EXPECT_FALSE(record_step(recorder, {0, 1, 2}));
  EXPECT_FALSE(record_step(recorder, {1, 0, 2}));
  EXPECT_TRUE(record_step(recorder, {2, 1, 0}));
}

TEST(ScheduleRecorder, BeginsAnewWithEachOtherSet) {
  ScheduleRecorder recorder(2, 100);
  EXPECT_FALSE(record_step(recorder, {0, 1}));
  EXPECT_FALSE(record_step(recorder, {0, 1, 2}));
  EXPECT_FALSE(record_step(recorder, {0, 1}));
  EXPECT_FALSE(record_step(recorder, {0, 2}));
  EXPECT_TRUE(record_step(recorder, {2, 0}));
}

TEST(ScheduleRecorder, NeverArmsWithoutAnythingOrWhenToldSo) {
  ScheduleRecorder recorder(1, 100), never(-1, 100);
  EXPECT_FALSE(record_step(recorder, {}));
  recorder.disturb();
  EXPECT_FALSE(record_step(recorder, {0}));
  EXPECT_TRUE(record_step(recorder, {0}));
  for (int time = 0; time < 10; ++time) EXPECT_FALSE(record_step(never, {0}));
}

TEST(ScheduleRecorder, CountsATensorOfTheNextStepForThatStep) {
  ScheduleRecorder recorder(1, 100);
  EXPECT_FALSE(recorder.result(Indices{0}, false, false));
  EXPECT_FALSE(recorder.result(Indices{1, 0}, false, true)) << "0 is of the next step, which has begun";
  EXPECT_TRUE(recorder.result(Indices{1}, false, true));
  Schedule schedule;
  recorder.make(table_of(2, 1), schedule);
  EXPECT_EQ(units(schedule), (std::vector<Indices>{{0}, {1}}));
}

// As if 0 were no sum: each result with it disturbs the step that it belongs to.
TEST(ScheduleRecorder, DisturbsTheNextStepTooByATensorThatGoesOverToIt) {
  ScheduleRecorder recorder(1, 100);
  recorder.disturb();
  EXPECT_FALSE(recorder.result(Indices{0}, false, false));
  recorder.disturb();
  EXPECT_FALSE(record_step(recorder, {0}));
  EXPECT_FALSE(record_step(recorder, {})) << "a step that 0 began";
  EXPECT_TRUE(record_step(recorder, {1}));
}

TEST(ScheduleRecorder, FindsTheStepsAgainAfterATensorThatCameLate) {
  ScheduleRecorder recorder(2, 100);
  record_step(recorder, {0});
  recorder.result(Indices{1}, false, false);  // late, of the first step
  bool armed = false;
  for (int time = 0; time < 4 && !armed; ++time) armed = record_step(recorder, {0, 1});
  EXPECT_TRUE(armed);
}

TEST(ScheduleRecorder, KeepsThePlaceThatAPriorityGave) {
  ScheduleRecorder recorder(2, 32);
  for (int step = 0; step < 2; ++step) {
    const bool urged = true;
    EXPECT_FALSE(recorder.result(Indices{0}, urged, false, Indices{kNoIndex}));
    EXPECT_FALSE(recorder.result(Indices{4, 6}, urged, false, Indices{kNoIndex, kNoIndex}));
    EXPECT_EQ(recorder.result(Indices{2, 8}, urged, true, Indices{4, kNoIndex}), step == 1) << "2 before 4";
  }
  Schedule schedule;
  recorder.make(table_of(9, 1), schedule);
  EXPECT_EQ(units(schedule), (std::vector<Indices>{{0}, {2}, {4, 6}, {8}}))
      << "2 came after a wait that 0 may have ended";
}

TEST(ScheduleRecorder, TakesAStepWithATensorTwiceForNoRule) {
  ScheduleRecorder recorder(1, 100);
  EXPECT_FALSE(recorder.result(Indices{0, 1}, false, false));
  EXPECT_FALSE(recorder.result(Indices{0}, false, false));
  EXPECT_FALSE(recorder.result(Indices{}, false, true));
}

TEST(ScheduleRecorder, OrdersByTheMeanAndFusesNeighboursOfOneKey) {
  const TensorTable table = table_of(6, 6);
  ScheduleRecorder recorder(3, 160);
  record_step(recorder, {4, 2, 0, 1, 3, 5});
  record_step(recorder, {4, 2, 0, 1, 3, 5});
  record_step(recorder, {5, 3, 1, 0, 2, 4});  // one step is not the rule
  Schedule schedule;
  recorder.make(table, schedule);
  EXPECT_EQ(units(schedule), (std::vector<Indices>{{4, 2}, {0}, {1, 3}, {5}}));
}

TEST(ScheduleRecorder, MakesTheFirstAndTheLastUnitsOfAStepSmaller) {
  ScheduleOrder order;
  std::uint64_t total = 0;
  for (std::uint32_t tensor = 0; tensor < 1000; ++tensor) {
    order.tensors.push_back(tensor);
    order.bytes.push_back(1 + tensor * 7 % 10);
    order.joins.push_back(tensor != 0);
    total += order.bytes.back();
  }
  for (const std::uint64_t fusion_bytes : {1, 100, 640, 100'000}) {
    const std::vector<std::uint32_t> ends = order.ends(fusion_bytes);
    EXPECT_EQ(ends.back(), order.tensors.size());
    EXPECT_LE(ends.size(), total / fusion_bytes + 30) << "few more";
    const std::uint64_t least = fusion_bytes / 16;
    std::uint64_t before = 0;
    std::uint32_t begin = 0;
    for (const std::uint32_t end : ends) {
      ASSERT_LT(begin, end);
      const std::uint64_t unit =
          std::accumulate(order.bytes.begin() + begin, order.bytes.begin() + end, std::uint64_t{0});
      const std::uint64_t most = std::max(std::min(before, total - before) / 4, least);
      const bool too_short_before_its_last = unit - order.bytes[end - 1] < least;
      if (end - begin > 1) {
        EXPECT_TRUE(unit <= std::min(most, fusion_bytes) || too_short_before_its_last) << unit;
      }
      before += unit;
      begin = end;
    }
  }
}

TEST(ScheduleRecorder, DoesNotFuseAcrossAWait) {
  const TensorTable table = table_of(6, 1);
  ScheduleRecorder recorder(1, 100);
  recorder.result(Indices{0, 2}, true, false);
  recorder.result(Indices{4}, false, true);
  Schedule schedule;
  recorder.make(table, schedule);
  EXPECT_EQ(units(schedule), (std::vector<Indices>{{0, 2}, {4}}));
}

TEST(ScheduleRecorder, BacksOffAndComesBackAfterALongRun) {
  ScheduleRecorder recorder(5, 100);
  recorder.broke(3, true);
  EXPECT_EQ(recorder.steps_needed(), 10U);
  recorder.broke(99, true);
  EXPECT_EQ(recorder.steps_needed(), 20U);
  recorder.broke(0, false);
  EXPECT_EQ(recorder.steps_needed(), 20U) << "not because of the schedule";
  for (int time = 0; time < 20; ++time) recorder.broke(0, true);
  EXPECT_EQ(recorder.steps_needed(), ScheduleRecorder::kMostSteps);
  recorder.broke(10 * ScheduleRecorder::kMostSteps, true);
  EXPECT_EQ(recorder.steps_needed(), 5U);
}

TEST(Schedule, GoesThroughItsUnitsInOrderAgainAndAgain) {
  Schedule schedule;
  schedule.assign(Indices{3, 1, 2}, Indices{2, 3}, 5);
  EXPECT_FALSE(schedule.contains(0) || schedule.contains(4) || schedule.contains(9));
  schedule.ready(2);
  EXPECT_TRUE(schedule.blocked());
  schedule.ready(3);
  EXPECT_EQ(schedule.head_tensors_ready(), 1U);
  schedule.ready(1);
  EXPECT_TRUE(schedule.head_ready() && !schedule.blocked());
  schedule.advance();
  EXPECT_TRUE(schedule.head_ready());
  EXPECT_FALSE(schedule.at_start());
  schedule.advance();
  EXPECT_TRUE(schedule.at_start());
  EXPECT_FALSE(schedule.head_ready());
  EXPECT_EQ(schedule.launched(), 2U);
  EXPECT_EQ(schedule.passes(), 1U);
}

TEST(Lateness, AllowsTenTimesTheMedianAndNeverLessThanTheLeast) {
  Lateness lateness(milliseconds(50));
  Instant now{};
  EXPECT_EQ(lateness.deadline(), kNever);
  for (int ms : {1, 2, 1, 30, 9, 8, 7}) {
    lateness.update(true, now);
    EXPECT_EQ(lateness.deadline(), now + lateness.limit());
    lateness.update(true, now + milliseconds(1));
    now += milliseconds(ms);
    lateness.update(false, now);
  }
  EXPECT_EQ(lateness.limit(), milliseconds(70));
  for (int time = 0; time < 15; ++time) {
    lateness.update(true, now);
    lateness.update(false, now += milliseconds(1));
  }
  EXPECT_EQ(lateness.limit(), milliseconds(50));
}

}  // namespace
}  // namespace aiacc::gradient

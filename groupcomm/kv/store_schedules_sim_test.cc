// Stores without replicas whose servers and workers die, in random schedules (store_schedule_world_test.h): every call of the living
// ends, well or with the name of a rank that it needs and that is dead, and what ends well is right.
#include "groupcomm/kv/store_schedule_world_test.h"

namespace aiacc::sim {
namespace {

TEST(SimSchedules, CallsThatNeedNobodyDeadEndWellAndOthersNameTheDead) {
  std::size_t failed = 0, well_at_last = 0;
  const std::uint64_t schedules = for_each_store_schedule(200, [&](std::uint64_t seed) {
    StoreScheduleRun run(seed, 1, 1);
    run.run();
    failed += run.failed();
    well_at_last += run.well_at_last();
  });
  EXPECT_GT(failed, schedules) << "deaths that cost nothing show nothing";
  EXPECT_GT(well_at_last, schedules / 3);
}

}  // namespace
}  // namespace aiacc::sim

// Stores with replicas whose servers and workers die, in random schedules (store_schedule_world_test.h).
#include "groupcomm/kv/store_schedule_world_test.h"

namespace aiacc::sim {
namespace {

TEST(SimReplicas, NothingAcknowledgedIsLostNorAppliedTwiceInRandomSchedules) {
  std::size_t survived = 0;
  const std::uint64_t schedules = for_each_store_schedule(300, [&](std::uint64_t seed) {
    StoreScheduleRun run(seed, 2, 2);
    run.run();
    survived += run.survived();
  });
  EXPECT_GT(survived, schedules / 3);
}

TEST(SimReplicas, DeathsInSequenceCostNothingAcknowledgedOnceCopiesAreMadeAnew) {
  for_each_store_schedule(300, [&](std::uint64_t seed) { StoreScheduleRun(seed, 2, 3).run_deaths_in_sequence(); });
}

}  // namespace
}  // namespace aiacc::sim

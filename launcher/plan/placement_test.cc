#include "launcher/plan/placement.h"

#include <gtest/gtest.h>

#include "launcher/plan/planned.h"

namespace aiacc::launcher {
namespace {

using namespace test;

TEST(Placement, ALineWhenRanksOutnumberTheCores) {
  EXPECT_TRUE(place(plan("-np 8 p")).notices.empty());
  const Placement crowded = place(plan("-np 9 p"));
  ASSERT_EQ(crowded.notices.size(), 1u);
  EXPECT_EQ(crowded.notices[0].id, MessageId::kBusy);
  expect_says(crowded.notices[0].sentence, {"9 ranks", "8 usable cores", "c01.cluster"});
  EXPECT_TRUE(place(plan("-np 9 --oversubscribe p")).notices.empty());
}

TEST(Placement, AQuotaSaysHowManyCoresAreUsable) {
  Topology topology = machine();
  topology.set_quota(Topology::Quota{2.5, "/groups/cpu.max"});
  EXPECT_TRUE(place(plan("-np 2 p"), topology).notices.empty());
  ASSERT_EQ(place(plan("-np 3 p"), topology).notices.size(), 1u);
  expect_says(place(plan("-np 3 p"), topology).notices[0].sentence,
              {"3 ranks", "2 usable cores", "2.5", "/groups/cpu.max"});
}

TEST(Placement, BindingsAreByLocalRank) {
  const Placement p = place(plan("-np 2 p"));
  EXPECT_EQ(format_cpus(p.binding.cpus[1]), "8-15");
  EXPECT_EQ(p.binding.unbound_because, "");
  EXPECT_TRUE(place(plan("-np 2 --bind-to none p")).binding.cpus[1].empty());
}

TEST(Placement, ByNodeIsBySlotOnEachHost) {
  EXPECT_EQ(format_cpus(place(plan("-np 4 --map-by node -H localhost:2,b:2 p")).binding.cpus[1]), "8-15");
  EXPECT_EQ(format_cpus(place(plan("-np 2 --map-by node --bind-to core p")).binding.cpus[1]), "8-9");
}

TEST(Placement, ABindingThatCannotBeIsSaid) {
  const Placement p = place(plan("-np 9 --oversubscribe --bind-to core p"));
  ASSERT_EQ(p.notices.size(), 1u);
  EXPECT_EQ(p.notices[0].id, MessageId::kUnbound);
  expect_says(p.notices[0].sentence, {"--bind-to core", "9 ranks", "8 usable cores"});
  EXPECT_TRUE(place(plan("-np 9 --oversubscribe --bind-to none p")).notices.empty());
}

TEST(Placement, AMachineWithoutTheWantedObjectsSaysSoOnce) {
  const Topology flat = machine("pu:4");
  EXPECT_TRUE(place(plan("-np 2 p"), flat).notices.empty());
  const Placement p = place(plan("-np 2 --map-by package --bind-to package p"), flat);
  ASSERT_EQ(p.notices.size(), 1u);
  EXPECT_EQ(p.notices[0].id, MessageId::kTopology);
  EXPECT_EQ(place(plan("-np 2 --bind-to core p"), flat).notices.size(), 1u);
  EXPECT_EQ(format_cpus(p.binding.cpus[0]), "0-3");
}

}  // namespace
}  // namespace aiacc::launcher

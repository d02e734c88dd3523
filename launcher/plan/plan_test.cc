#include "launcher/plan/plan.h"

#include <gtest/gtest.h>

#include "launcher/plan/planned.h"

namespace aiacc::launcher {
namespace {

using namespace test;

TEST(Plan, DirectoryAndCommand) {
  EXPECT_EQ(plan("-np 1 p").cwd, "/home/ann");
  EXPECT_EQ(plan("-np 1 --wdir /tmp p").cwd, "/tmp");
  const Plan p = plan("-np 1 --wdir run/1 p -a");
  EXPECT_EQ(p.cwd, "/home/ann/run/1");
  EXPECT_EQ(of_rank(p, 0).get("PWD"), "/home/ann/run/1");
  EXPECT_EQ(p.argv, (Words{"p", "-a"}));
}

TEST(Plan, ADirectoryThatIsGoneIsMissedOnlyWhereItIsNeeded) {
  Surroundings here = surroundings();
  here.cwd.clear();
  EXPECT_EQ(plan("-np 1 --wdir /tmp p", here).cwd, "/tmp");
  for (const char* line : {"-np 1 p", "-np 1 --wdir run p"}) {
    EXPECT_THROW(
        {
          try {
            plan(line, here);
          } catch (const UsageError& error) {
            EXPECT_EQ(error.id(), MessageId::kWdir);
            throw;
          }
        },
        UsageError);
  }
}

TEST(PlanText, SaysEverything) {
  const Options o = options("-np 3 -H localhost:4 -x TOKEN=hunter2 --kill-grace 5 -- ./p it's");
  const Surroundings here = surroundings();
  const std::string text = describe_plan(make_plan(o, here), o, here, machine());
  expect_says(text, {"c01.cluster: 3 ranks (0-2), 4 slots", "8 cores (cpus 0-15), 2 NUMA domains, 2 packages",
                     "rank 0 on c01.cluster: cores 0-2 (cpus 0-5) of NUMA 0, package 0, OMP_NUM_THREADS=3",
                     "rank 2 on c01.cluster: cores 6-7 (cpus 12-15) of NUMA 1, package 1", "./p 'it'\\''s'",
                     "/home/ann", "AIACC_RANK=0", "--kill-grace", "command line", "default"});
  EXPECT_EQ(text.find("hunter2"), std::string::npos) << "values given with -x may be secret";
}

TEST(PlanText, SaysWhyNothingIsBound) {
  const Options o = options("-np 20 p");
  const Surroundings here = surroundings();
  expect_says(describe_plan(make_plan(o, here), o, here, machine()),
              {"not bound: 20 ranks outnumber 8 usable cores", "no limit of slots"});
}

TEST(PlanText, OtherHostsAreAssumedAndSaidToBe) {
  const Options o = options("-H localhost:2,ann@b:2 -x FOO_A ./p");
  const Surroundings here = surroundings();
  const std::string text = describe_plan(make_plan(o, here), o, here, machine());
  expect_says(text, {"b: 2 ranks (2-3), 2 slots",
                     "agent: ssh -T -x -o BatchMode=yes -l ann b /usr/bin/aiaccrun --remote-keeper", "were not asked",
                     "rank 3 on b: cores 4-7 (cpus 8-15) of NUMA 1, package 1, OMP_NUM_THREADS=4 (assumed)",
                     "ranks on this host inherit all", "from here: PATH FOO_A PWD"});
  EXPECT_EQ(text.find("HOME"), std::string::npos);
}

TEST(DescribeBinding, InWords) {
  const Topology two = Topology::synthetic("package:2 numa:1 core:4 pu:2");
  EXPECT_EQ(describe_binding({0, 1, 2, 3}, two), "cores 0-1 (cpus 0-3) of NUMA 0, package 0");
  EXPECT_EQ(describe_binding({3}, two), "core 1 (cpu 3) of NUMA 0, package 0");
  EXPECT_EQ(describe_binding({6, 8}, two), "cores 3-4 (cpus 6,8) of NUMA 0-1, package 0-1");
  EXPECT_EQ(describe_binding(two.pus(), two), "every usable core (cpus 0-15) of NUMA 0-1, package 0-1");
  EXPECT_EQ(describe_binding({0}, Topology::synthetic("core:2 pu:1")), "core 0 (cpu 0)");
  EXPECT_EQ(describe_binding({77}, two), "cpu 77");
}

}  // namespace
}  // namespace aiacc::launcher

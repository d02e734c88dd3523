#include "launcher/plan/starter.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace aiacc::launcher {
namespace {

Options ssh() { return {}; }

Options by(const std::string& command) {
  Options options;
  options.launch_agent = {command, Source::kFlag};
  return options;
}

HostPlan host(const std::string& name) {
  HostPlan plan;
  plan.name = name;
  return plan;
}

TEST(Starter, SshAsksNothingAndTheRemoteWordsAreConstant) {
  HostPlan b = host("b");
  const auto commands = starter_commands(b, ssh(), "/opt/aiacc/bin/aiaccrun");
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0],
            (Words{"ssh", "-T", "-x", "-o", "BatchMode=yes", "b", "/opt/aiacc/bin/aiaccrun", "--remote-keeper"}));
  EXPECT_EQ(commands[1].at(6), "aiaccrun") << "then from PATH";
  b.user = "ann";
  b.port = 2222;
  EXPECT_EQ(quoted(starter_commands(b, ssh(), "/x/aiaccrun")[0]),
            "ssh -T -x -o BatchMode=yes -l ann -p 2222 b /x/aiaccrun --remote-keeper");
}

TEST(Starter, AnotherCommandGetsTheHostFirst) {
  HostPlan b = host("b");
  EXPECT_EQ(starter_commands(b, by("  enter  -v "), "/x/aiaccrun")[0],
            (Words{"enter", "-v", "b", "/x/aiaccrun", "--remote-keeper"}));
  b.user = "ann";
  EXPECT_EQ(starter_commands(b, by("enter"), "/x/aiaccrun")[0].at(1), "ann@b");
  EXPECT_THROW(starter_commands(b, by("  "), "/x/aiaccrun"), UsageError);
  b.port = 22;
  EXPECT_THROW(starter_commands(b, by("enter"), "/x/aiaccrun"), UsageError);
}

TEST(Starter, ANodeOfTheSlurmJobIsReachedByAStepOfOneTaskUnlessACommandIsGiven) {
  HostPlan node = host("n2");
  node.by_srun = true;
  const Words words = starter_commands(node, ssh(), "/x/aiaccrun")[0];
  EXPECT_EQ(words.front(), "srun");
  for (const char* word : {"--overlap", "--nodes=1", "--ntasks=1", "--nodelist=n2", "--unbuffered"}) {
    EXPECT_NE(std::find(words.begin(), words.end(), word), words.end()) << word;
  }
  EXPECT_EQ(Words(words.end() - 6, words.end()),
            (Words{"sh", "-c", "exec \"$@\"", "sh", "/x/aiaccrun", "--remote-keeper"}));
  EXPECT_EQ(starter_commands(node, by("enter"), "/x/aiaccrun")[0].front(), "enter");
}

TEST(Starter, SrunTakesNoOptionsFromTheJobsVariables) {
  HostPlan node = host("n2");
  node.by_srun = true;
  const Words ours = {"PATH=/bin",    "SLURM_JOB_ID=77", "SLURM_CONF=/c",          "SLURM_GPUS=8",
                      "SRUN_DEBUG=3", "SLURM_LABELIO=1", "CUDA_VISIBLE_DEVICES=0", "HOME=/home/ann"};
  EXPECT_EQ(starter_environment(node, ssh(), ours),
            (Words{"PATH=/bin", "SLURM_JOB_ID=77", "SLURM_CONF=/c", "HOME=/home/ann"}));
  EXPECT_EQ(starter_environment(node, by("enter"), ours), ours);
  EXPECT_EQ(starter_environment(host("b"), ssh(), ours), ours);
}

TEST(Starter, IsolationIsAWordMore) {
  Options options = ssh();
  options.isolate.value = true;
  EXPECT_EQ(starter_commands(host("b"), options, "/x/aiaccrun")[0].back(), "--isolate");
}

TEST(Starter, WhatRunsOnOtherHosts) {
  EXPECT_EQ(remote_program("/usr/bin/aiaccrun"), "/usr/bin/aiaccrun");
  EXPECT_EQ(remote_program("/build/.libs/lt-aiaccrun"), "/build/aiaccrun");
  EXPECT_EQ(remote_program("/build/.libs/aiaccrun"), "/build/aiaccrun");
  for (const char* odd : {"", "aiaccrun", "/my tools/aiaccrun", "/a'b/aiaccrun", "/$HOME/aiaccrun", "/a!b/aiaccrun",
                          "/a=b/x", "/a~/x", "/a*/x"}) {
    EXPECT_EQ(remote_program(odd), "") << odd;
  }
  EXPECT_EQ(starter_commands(host("b"), ssh(), "/my tools/aiaccrun").size(), 1u);
}

}  // namespace
}  // namespace aiacc::launcher

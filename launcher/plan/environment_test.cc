#include "launcher/plan/environment.h"

#include <gtest/gtest.h>

#include "launcher/plan/planned.h"

namespace aiacc::launcher {
namespace {

using namespace test;

TEST(Environment, OfOtherHosts) {
  Surroundings here = surroundings();
  const Words more = {"NCCL_DEBUG=WARN",    "CUDA_VISIBLE_DEVICES=3", "CUDA_CACHE_PATH=/c",
                      "PYTHONPATH=/p",      "AIACC_LOG=info",         "AIACC_RANK=4",
                      "LD_LIBRARY_PATH=/l", "TOKEN=hunter2",          "OMP_PLACES=cores"};
  here.environment.insert(here.environment.end(), more.begin(), more.end());
  const Plan p = plan("-H localhost,b -x FOO_A p", here);
  const Environment own = of_rank(p, 0);
  const Environment other = of_rank(p, 1);
  EXPECT_EQ(own.get("TOKEN"), "hunter2");
  EXPECT_EQ(own.get("CUDA_VISIBLE_DEVICES"), "3");
  for (const char* gone : {"TOKEN", "CUDA_VISIBLE_DEVICES", "HOME", "FOO_B"}) EXPECT_FALSE(other.has(gone)) << gone;
  for (const char* kept :
       {"NCCL_DEBUG", "CUDA_CACHE_PATH", "PYTHONPATH", "AIACC_LOG", "LD_LIBRARY_PATH", "PATH", "OMP_PLACES", "FOO_A"}) {
    EXPECT_TRUE(other.has(kept)) << kept;
  }
  EXPECT_EQ(other.get("AIACC_RANK"), "1");
  EXPECT_EQ(other.get("AIACC_HOST_INDEX"), "1");
  EXPECT_EQ(other.get("LOCAL_RANK"), "0");
  EXPECT_EQ(other.get("PWD"), "/home/ann");
}

TEST(Environment, SaysOnAllHostsWhoOnlyServes) {
  const Plan p = plan("-H localhost:2,b:2 --servers 2 -x AIACC_KV_SERVERS=1 p");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(of_rank(p, rank).get("AIACC_KV_SERVERS"), "2") << rank;
    EXPECT_FALSE(of_rank(p, rank).has("DMLC_ROLE"));
  }
  EXPECT_FALSE(of_rank(plan("-np 2 p"), 0).has("AIACC_KV_SERVERS"));
}

TEST(Environment, WhoAmI) {
  const Plan p = plan("-np 3 p");
  const Environment e = of_rank(p, 2);
  for (const auto& [name, value] : std::vector<std::pair<const char*, const char*>>{{"AIACC_RANK", "2"},
                                                                                    {"AIACC_SIZE", "3"},
                                                                                    {"AIACC_LOCAL_RANK", "2"},
                                                                                    {"AIACC_LOCAL_SIZE", "3"},
                                                                                    {"AIACC_HOST_INDEX", "0"},
                                                                                    {"AIACC_AGENT", "local:agent-1"},
                                                                                    {"RANK", "2"},
                                                                                    {"WORLD_SIZE", "3"},
                                                                                    {"LOCAL_RANK", "2"},
                                                                                    {"LOCAL_WORLD_SIZE", "3"},
                                                                                    {"MASTER_ADDR", "10.0.0.1"},
                                                                                    {"MASTER_PORT", "29400"},
                                                                                    {"PATH", "/bin"},
                                                                                    {"HOME", "/home/ann"}}) {
    EXPECT_EQ(e.get(name), value) << name;
  }
  EXPECT_FALSE(e.has("HOROVOD_RANK"));
  EXPECT_FALSE(e.has("OMPI_COMM_WORLD_RANK"));
}

TEST(Environment, AnOutputThatIsATerminalIsToldUnlessLinesAreTagged) {
  Surroundings here;
  here.environment = {"AIACC_TERMINAL=yes", "HOME=/home/ann"};
  std::vector<Notice> notices;
  const auto told = [&](const std::string& words) {
    const Options given = options(words);
    const bool common = common_environment(given, here, notices).get("AIACC_TERMINAL") == "yes";
    EXPECT_EQ(remote_environment(given, here).get("AIACC_TERMINAL") == "yes", common);
    return common;
  };
  EXPECT_FALSE(told("-np 2 p"));
  here.terminal = true;
  EXPECT_TRUE(told("-np 2 p"));
  EXPECT_FALSE(told("-np 2 --tag-output p"));
}

TEST(Environment, FamiliesOnRequest) {
  const Environment e = of_rank(plan("-np 3 --compat-env horovod,ompi p"), 1);
  EXPECT_EQ(e.get("HOROVOD_RANK"), "1");
  EXPECT_EQ(e.get("HOROVOD_CROSS_SIZE"), "1");
  EXPECT_EQ(e.get("OMPI_COMM_WORLD_SIZE"), "3");
  EXPECT_EQ(e.get("OMPI_COMM_WORLD_LOCAL_RANK"), "1");
  EXPECT_FALSE(of_rank(plan("-np 3 --compat-env ompi p"), 1).has("HOROVOD_RANK"));
}

TEST(Environment, WhatAnotherLauncherSaidOfUsIsNotHandedOn) {
  Surroundings here = surroundings();
  const Words stale = {
      "OMPI_COMM_WORLD_RANK=5",         "PMIX_RANK=5", "PMIX_SERVER_URI41=x",   "PMI_FD=7",      "SLURM_PROCID=0",
      "TORCHELASTIC_USE_AGENT_STORE=1", "RANK=9",      "AIACC_AGENT=local:old", "HOROVOD_SIZE=2"};
  here.environment.insert(here.environment.end(), stale.begin(), stale.end());
  here.environment.push_back("SLURM_JOB_ID=77");
  const Environment e = of_rank(plan("-np 1 p", here), 0);
  for (const char* gone : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMIX_SERVER_URI41", "PMI_FD", "SLURM_PROCID",
                           "TORCHELASTIC_USE_AGENT_STORE", "HOROVOD_SIZE"}) {
    EXPECT_FALSE(e.has(gone)) << gone;
  }
  EXPECT_EQ(e.get("RANK"), "0");
  EXPECT_EQ(e.get("AIACC_AGENT"), "local:agent-1");
  EXPECT_EQ(e.get("SLURM_JOB_ID"), "77");
  EXPECT_EQ(of_rank(plan("-np 1 -x PMIX_RANK p", here), 0).get("PMIX_RANK"), "5") << "asked for by name";
}

TEST(Environment, Forwarding) {
  const Environment e = of_rank(plan("-np 1 -x NEW=a=b -x HOME -x FOO_A=9 -x EMPTY= -x FOO_* p"), 0);
  EXPECT_EQ(e.get("NEW"), "a=b");
  EXPECT_EQ(e.get("HOME"), "/home/ann");
  EXPECT_TRUE(e.has("EMPTY"));
  EXPECT_EQ(e.get("FOO_A"), "1") << "the later -x counts";
  EXPECT_EQ(e.get("FOO_B"), "2");
  EXPECT_EQ(of_rank(plan("-np 1 -x NONE_* p"), 0).get("FOOD"), "3");
  EXPECT_EQ(of_rank(plan("-np 1 -x A=1 -x A=2 p"), 0).get("A"), "2");
}

TEST(Environment, UnsetVariable) {
  const UsageError error = refusal("-np 1 -x MISSING p");
  EXPECT_EQ(error.id(), MessageId::kVariable);
  expect_says(error.message(), {"-x MISSING", "not set", "MISSING=VALUE"});
}

TEST(Environment, FixedVariablesWinOverForwardedOnes) {
  Surroundings here = surroundings();
  here.environment.push_back("AIACC_RANK=41");
  const Plan p = plan("-np 2 -x RANK=7 -x MASTER_PORT=1 -x AIACC_* p", here);
  EXPECT_EQ(of_rank(p, 1).get("RANK"), "1");
  EXPECT_EQ(of_rank(p, 1).get("MASTER_PORT"), "29400");
  EXPECT_EQ(of_rank(p, 1).get("AIACC_RANK"), "1");
  ASSERT_EQ(p.notices.size(), 2u);
  expect_says(p.notices[0].sentence, {"-x RANK", "no effect"});
}

TEST(Environment, ThreadsFollowTheBindingUnlessSet) {
  EXPECT_EQ(of_rank(plan("-np 3 p"), 0).get("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(of_rank(plan("-np 3 p"), 2).get("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(of_rank(plan("-np 9 p"), 2).get("OMP_NUM_THREADS"), "1");
  EXPECT_EQ(of_rank(plan("-np 3 -x OMP_NUM_THREADS=5 p"), 0).get("OMP_NUM_THREADS"), "5");
  Surroundings here = surroundings();
  here.environment.push_back("OMP_NUM_THREADS=6");
  EXPECT_EQ(of_rank(plan("-np 3 p", here), 0).get("OMP_NUM_THREADS"), "6");
}

TEST(Environment, FirstOfEqualNamesCountsAndNonVariablesAreDropped) {
  const Environment e({"A=1", "A=2", "nothing", "=x", "B="});
  EXPECT_EQ(e.entries(), (Words{"A=1", "B="}));
}

}  // namespace
}  // namespace aiacc::launcher

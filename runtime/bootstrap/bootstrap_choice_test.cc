// The order of sources, and that no launcher's signal for several ranks ends as several worlds of one.
#include "runtime/bootstrap/bootstrap_choice.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "base/error.h"

namespace aiacc {
namespace {

using Kind = BootstrapChoice::Kind;

EnvironmentLookup environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

// The sentence of the refusal, "" if there was none.
std::string refusal(std::map<std::string, std::string> variables, std::optional<GivenIdentity> given = std::nullopt) {
  try {
    choose_bootstrap(given, environment(std::move(variables)));
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

TEST(BootstrapChoice, NothingIsAWorldOfOne) {
  const BootstrapChoice choice = choose_bootstrap(std::nullopt, environment({}));
  EXPECT_EQ(choice.kind, Kind::kSingleton);
  EXPECT_EQ(choice.rank, 0);
  EXPECT_EQ(choice.size, 1);
}

TEST(BootstrapChoice, AgentBringsRankAndSize) {
  const auto variables = environment({{"AIACC_AGENT", "local:x"},
                                      {"AIACC_RANK", "2"},
                                      {"AIACC_SIZE", "4"},
                                      {"AIACC_RENDEZVOUS", "a:1"},
                                      {"OMPI_COMM_WORLD_RANK", "0"},
                                      {"OMPI_COMM_WORLD_SIZE", "8"}});
  const BootstrapChoice choice = choose_bootstrap(std::nullopt, variables);
  EXPECT_EQ(choice.kind, Kind::kAgent);
  EXPECT_EQ(choice.agent, "local:x");
  EXPECT_EQ(choice.rank, 2);
  EXPECT_EQ(choice.size, 4);
  EXPECT_FALSE(choice.several_hosts);
  EXPECT_TRUE(choose_bootstrap(std::nullopt, environment({{"AIACC_AGENT", "local:x"},
                                                          {"AIACC_RANK", "2"},
                                                          {"AIACC_SIZE", "4"},
                                                          {"AIACC_LOCAL_SIZE", "3"}}))
                  .several_hosts);
  EXPECT_FALSE(choose_bootstrap(std::nullopt, environment({{"AIACC_AGENT", "local:x"},
                                                           {"AIACC_RANK", "2"},
                                                           {"AIACC_SIZE", "4"},
                                                           {"AIACC_LOCAL_SIZE", "4"}}))
                   .several_hosts);
  EXPECT_TRUE(choose_bootstrap(std::nullopt, environment({{"AIACC_AGENT", "local:x"},
                                                          {"AIACC_RANK", "9"},
                                                          {"AIACC_SIZE", "4"},
                                                          {"AIACC_LOCAL_SIZE", "4"},
                                                          {"AIACC_NEW_HOSTS", "yes"}}))
                  .several_hosts)
      << "a job that grows";
  const BootstrapChoice given = choose_bootstrap(GivenIdentity{1, 3}, variables);
  EXPECT_EQ(given.rank, 1) << "the program's own word comes first; the agent says whether it agrees";
  EXPECT_EQ(given.size, 3);
  EXPECT_NE(refusal({{"AIACC_AGENT", "local:x"}, {"AIACC_RANK", "two"}, {"AIACC_SIZE", "4"}}).find("'two'"),
            std::string::npos);
}

TEST(BootstrapChoice, GivenIdentity) {
  EXPECT_EQ(choose_bootstrap(GivenIdentity{0, 1}, environment({{"AIACC_AGENT", "local:x"}, {"PMI_SIZE", "4"}})).kind,
            Kind::kSingleton);
  EXPECT_NE(refusal({}, GivenIdentity{1, 4}).find("rank 1 of 4"), std::string::npos);
  EXPECT_NE(refusal({}, GivenIdentity{4, 4}).find("below"), std::string::npos);
  EXPECT_NE(refusal({}, GivenIdentity{0, 0}), "");
  EXPECT_NE(refusal({}, GivenIdentity{-1, 2}), "");
}

TEST(BootstrapChoice, EveryForeignSignalForSeveralRanksIsNamed) {
  const std::vector<std::pair<std::string, std::map<std::string, std::string>>> signals = {
      {"OMPI_COMM_WORLD_SIZE=2", {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}},
      {"PMI_SIZE=2", {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}},
      {"SLURM_NTASKS=2", {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}}},
      {"SLURM_STEP_NUM_TASKS=3",
       {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_NUM_TASKS", "3"}}},
      {"WORLD_SIZE=2", {{"TORCHELASTIC_RUN_ID", "none"}, {"WORLD_SIZE", "2"}}},
      {"WORLD_SIZE=2", {{"WORLD_SIZE", "2"}, {"RANK", "0"}}},
      {"PMIX_RANK=0", {{"PMIX_NAMESPACE", "x"}, {"PMIX_RANK", "0"}}},
      {"HOROVOD_SIZE=2", {{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}}},
      {"FLUX_JOB_SIZE=2", {{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "2"}}},
      {"AIACC_SIZE=4", {{"AIACC_RANK", "0"}, {"AIACC_SIZE", "4"}}},
  };
  for (const auto& [named, variables] : signals) {
    EXPECT_NE(refusal(variables).find(named), std::string::npos) << named << ": " << refusal(variables);
    EXPECT_NE(refusal(variables).find("aiaccrun"), std::string::npos) << "the cure";
  }
}

TEST(BootstrapChoice, OneRankOrHalfASignalIsAWorldOfOne) {
  EXPECT_EQ(
      refusal(
          {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "x"}}),
      "");
  EXPECT_EQ(refusal({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}), "") << "a batch script is no step";
  EXPECT_EQ(refusal({{"WORLD_SIZE", "1"}, {"RANK", "0"}}), "");
  EXPECT_EQ(refusal({{"RANK", "3"}}), "");
  EXPECT_EQ(refusal({{"PMI_RANK", "1"}}), "");
}

// Rank and size by the names of each launcher, the innermost first.
TEST(BootstrapChoice, ARendezvousNeedsToKnowWhoWeAre) {
  using Variables = std::map<std::string, std::string>;
  const std::vector<std::tuple<int, int, Variables>> launched = {
      {2, 4, {{"AIACC_RANK", "2"}, {"AIACC_SIZE", "4"}, {"RANK", "0"}, {"WORLD_SIZE", "9"}}},
      {3, 9, {{"RANK", "3"}, {"WORLD_SIZE", "9"}}},
      {3,
       16,
       {{"TORCHELASTIC_RUN_ID", "x"},
        {"RANK", "3"},
        {"WORLD_SIZE", "16"},
        {"SLURM_PROCID", "1"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_NTASKS", "2"}}},
      {1,
       2,
       {{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"SLURM_PROCID", "0"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_NTASKS", "1"}}},
      {1, 3, {{"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "3"}}},
      {1, 2, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}},
      {1, 2, {{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "2"}}},
  };
  for (const auto& [rank, size, variables] : launched) {
    Variables all = variables;
    all.insert({{"AIACC_RENDEZVOUS", "a:1"}, {"AIACC_SECRET_FILE", "/f"}, {"AIACC_JOB", "mine"}});
    const BootstrapChoice choice = choose_bootstrap(std::nullopt, environment(all));
    EXPECT_EQ(choice.kind, Kind::kRendezvous);
    EXPECT_EQ(choice.rendezvous, "a:1");
    EXPECT_EQ(choice.secret_file, "/f");
    EXPECT_EQ(choice.job, "mine");
    EXPECT_EQ(choice.rank, rank);
    EXPECT_EQ(choice.size, size);
    EXPECT_EQ(choose_bootstrap(GivenIdentity{5, 7}, environment(all)).rank, 5) << "the program's own word comes first";
  }
}

TEST(BootstrapChoice, WhatARendezvousLacksIsNamed) {
  const std::map<std::string, std::string> place = {{"AIACC_RENDEZVOUS", "a:4242"}, {"AIACC_SECRET_FILE", "/f"}};
  const auto with = [&](std::map<std::string, std::string> more) {
    more.insert(place.begin(), place.end());
    return refusal(std::move(more));
  };
  EXPECT_NE(
      with({}).find("AIACC_RENDEZVOUS=a:4242 needs to know which rank this is, and nothing tells: set AIACC_RANK"),
      std::string::npos);
  EXPECT_NE(with({{"AIACC_RANK", "1"}}).find("AIACC_SIZE is not set"), std::string::npos);
  EXPECT_NE(with({{"AIACC_RANK", "x"}, {"AIACC_SIZE", "2"}}).find("AIACC_RANK is 'x'"), std::string::npos);
  EXPECT_NE(with({{"AIACC_RANK", "2"}, {"AIACC_SIZE", "2"}}).find("AIACC_RANK=2 and AIACC_SIZE=2 cannot both be true"),
            std::string::npos);
  EXPECT_NE(with({{"RANK", "7"}, {"WORLD_SIZE", "2"}}).find("RANK=7 and WORLD_SIZE=2"), std::string::npos);
  EXPECT_NE(with({{"AIACC_RANK", "0"}, {"AIACC_SIZE", "2"}, {"MASTER_PORT", "4242"}}).find("MASTER_PORT"),
            std::string::npos);
  EXPECT_EQ(with({{"AIACC_RANK", "0"}, {"AIACC_SIZE", "2"}, {"MASTER_PORT", "242"}}), "");
  EXPECT_EQ(with({{"AIACC_RANK", "0"}, {"AIACC_SIZE", "1"}}), "");
  const std::string sentence = refusal({{"AIACC_RENDEZVOUS", "a:1"}, {"AIACC_RANK", "0"}, {"AIACC_SIZE", "2"}});
  EXPECT_NE(sentence.find("(umask 077; head -c 32 /dev/urandom >aiacc.secret)"), std::string::npos) << sentence;
}

TEST(BootstrapChoice, AStoreComesBeforeTheAgent) {
  const auto variables = environment({{"AIACC_AGENT", "local:x"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}});
  const BootstrapChoice choice = choose_bootstrap(std::nullopt, GivenMeans{true, "mine"}, variables);
  EXPECT_EQ(choice.kind, Kind::kStore);
  EXPECT_EQ(choice.rank, 1);
  EXPECT_EQ(choice.job, "mine");
  EXPECT_EQ(choose_bootstrap(GivenIdentity{0, 3}, GivenMeans{true, ""}, variables).size, 3);
  EXPECT_EQ(choose_bootstrap(GivenIdentity{0, 1}, GivenMeans{true, ""}, variables).kind, Kind::kSingleton);
}

TEST(BootstrapChoice, SingletonOnRequest) {
  EXPECT_EQ(refusal({{"AIACC_SINGLETON", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}), "");
  EXPECT_NE(refusal({{"AIACC_SINGLETON", "0"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}), "");
}

}  // namespace
}  // namespace aiacc

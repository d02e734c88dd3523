#include "launcher/plan.h"

#include <gtest/gtest.h>

#include <sstream>

#include "launcher/environment.h"
#include "launcher/hosts.h"
#include "launcher/placement.h"

namespace aiacc::launcher {
namespace {

using Words = std::vector<std::string>;

Surroundings surroundings() {
  return {
      "c01.cluster", "/home/ann", {"PATH=/bin", "HOME=/home/ann", "FOO_A=1", "FOO_B=2", "FOOD=3"}, "/usr/bin/aiaccrun"};
}

Topology machine(const std::string& shape = "package:2 numa:1 core:4 pu:2") { return Topology::synthetic(shape); }

Options options(const std::string& line) {
  std::istringstream in(line);
  return parse_options(Words(std::istream_iterator<std::string>(in), {}));
}

Plan plan(const std::string& line, const Surroundings& here = surroundings()) { return make_plan(options(line), here); }

// Where the ranks of the plan's first host go.
Placement place(const Plan& plan, const Topology& topology = machine()) {
  return place_ranks(static_cast<int>(plan.hosts[0].ranks.size()), plan.placement, topology, plan.hosts[0].name);
}

Environment of_rank(const Plan& plan, int rank) {
  const RankPlan& own = plan.ranks[static_cast<std::size_t>(rank)];
  const bool local = plan.hosts[static_cast<std::size_t>(own.host)].local;
  const Environment common(local ? plan.environment : plan.remote_environment);
  const int threads = place(plan).binding.threads.at(static_cast<std::size_t>(own.local_rank));
  const Words entries = rank_environment(common, own.environment, {"local:agent-1", "10.0.0.1", 29400}, threads);
  Environment unique(entries);
  EXPECT_EQ(unique.entries().size(), entries.size()) << "a name stands twice";
  return unique;
}

UsageError refusal(const std::string& line, const Surroundings& here = surroundings()) {
  try {
    plan(line, here);
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message().find('\n'), std::string::npos);
    return error;
  }
  ADD_FAILURE() << "accepted: " << line;
  return {MessageId::kInternal, ""};
}

void expect_says(const std::string& text, const Words& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(Hosts, NamesOfThisHost) {
  for (const char* name : {"localhost", "LOCALHOST", "127.0.0.1", "::1", "c01", "C01", "c01.cluster"}) {
    EXPECT_TRUE(is_this_host(name, "c01.cluster")) << name;
  }
  for (const char* name : {"c02", "c01.other", "c0", "c011", "127.0.0.2", ""})
    EXPECT_FALSE(is_this_host(name, "c01.cluster")) << name;
  EXPECT_FALSE(is_this_host("c01.cluster", "c01"));
}

TEST(Hosts, ASlotWithoutANumberAndMore) {
  EXPECT_EQ(plan("-H localhost p").size(), 1);
  EXPECT_EQ(plan("-H localhost:4 p").size(), 4);
  EXPECT_EQ(plan("-H localhost,127.0.0.1:2,[::1]:3 -H c01 p").hosts.at(0).slots, 7);
  EXPECT_EQ(plan("-np 2 -H localhost:4 p").size(), 2);
  EXPECT_EQ(plan("-np 3 -H localhost:3 p").hosts.at(0).name, "c01.cluster");
}

TEST(Hosts, MoreRanksThanSlotsAreRefusedWithBothNumbers) {
  const UsageError error = refusal("-np 8 -H localhost:4 p");
  EXPECT_EQ(error.id(), MessageId::kSlots);
  expect_says(error.message(), {"8 ranks", "4 slots", "--oversubscribe"});
  expect_says(refusal("-np 2 -H localhost p").message(), {"2 ranks", "1 slot "});
  EXPECT_EQ(refusal("-N 5 -H localhost:4 p").id(), MessageId::kSlots);
  EXPECT_EQ(plan("-np 8 -H localhost:4 --oversubscribe p").size(), 8);
}

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

TEST(Hosts, RanksPerHost) {
  EXPECT_EQ(plan("-N 3 p").size(), 3);
  EXPECT_EQ(plan("-N 3 -np 2 p").size(), 2);
  expect_says(refusal("-N 3 -np 7 p").message(), {"7 ranks", "-N 3", "3 hosts"});
}

TEST(Hosts, NoNumberOfRanks) {
  const UsageError error = refusal("p");
  EXPECT_EQ(error.id(), MessageId::kRanks);
  expect_says(error.message(), {"-np N", "-H HOST:SLOTS"});
}

std::string in_words(const Plan& plan) {
  std::string text;
  for (const HostPlan& host : plan.hosts) {
    text += (text.empty() ? "" : " ") + host.name + ":";
    for (const int rank : host.ranks) text += std::to_string(rank);
  }
  return text;
}

TEST(Hosts, SeveralAreFilledOneAfterTheOtherOrInTurn) {
  EXPECT_EQ(in_words(plan("-H a:2,b:3 p")), "a:01 b:234");
  EXPECT_EQ(in_words(plan("-np 3 -H a:2,b:3 p")), "a:01 b:2");
  EXPECT_EQ(in_words(plan("-np 2 -H a:2,b:3 p")), "a:01") << "a host without ranks is none of the job's";
  EXPECT_EQ(in_words(plan("-np 4 --map-by node -H a:2,b:3 p")), "a:02 b:13");
  EXPECT_EQ(in_words(plan("-np 5 --map-by node -H a:1,b:1,c:3 p")), "a:0 b:1 c:234");
  EXPECT_EQ(in_words(plan("-np 4 -N 2 -H a:3,b:3 p")), "a:01 b:23");
  EXPECT_EQ(in_words(plan("-N 1 -H a:3,b:3 p")), "a:0 b:1");
}

TEST(Hosts, WhatHasNoSlotGoesRound) {
  EXPECT_EQ(in_words(plan("-np 5 --oversubscribe -H a,b p")), "a:012 b:34");
  EXPECT_EQ(in_words(plan("-np 5 --oversubscribe --map-by node -H a,b p")), "a:024 b:13");
  EXPECT_EQ(in_words(plan("-np 4 -N 2 --oversubscribe -H a,b p")), "a:01 b:23");
}

TEST(Hosts, ANameThatStandsTwiceAddsItsSlots) {
  EXPECT_EQ(in_words(plan("-H a,b,A:2 p")), "a:012 b:3");
  EXPECT_EQ(in_words(plan("-H localhost,b,c01:2 p")), "c01.cluster:012 b:3");
  EXPECT_TRUE(plan("-H localhost,b p").hosts[0].local);
  EXPECT_FALSE(plan("-H localhost,b p").hosts[1].local);
}

Surroundings after_reaching(std::vector<Words> same) {
  Surroundings here = surroundings();
  here.same_machines = std::move(same);
  return here;
}

TEST(Hosts, NamesOfOneMachineAreOneHostAtTheFirstOnesPlace) {
  EXPECT_EQ(in_words(plan("-H a:2,b:2 p", after_reaching({{"a", "b"}}))), "a:0123");
  EXPECT_EQ(in_words(plan("-H a:2,c:2,b:2 p", after_reaching({{"a", "b"}}))), "a:0123 c:45");
  EXPECT_EQ(in_words(plan("-np 3 --map-by node -H a:1,b:1,c:1 p", after_reaching({{"a", "b"}}))), "a:02 c:1");
  EXPECT_EQ(in_words(plan("-np 3 -H a,b,c,d,e p", after_reaching({{"a", "c"}, {"b", "d"}}))), "a:01 b:2");
  EXPECT_EQ(in_words(plan("-N 1 -H a:2,b:2,c p", after_reaching({{"a", "b"}}))), "a:0 c:1");
  EXPECT_EQ(in_words(plan("-H a,b,c p", after_reaching({{"b", "c"}, {"a", "b"}}))), "a:012") << "found in two turns";
}

TEST(Hosts, OneLineSaysWhichNamesAreOneMachine) {
  const Plan p = plan("-H c01,c01.example.org,b:2,[10.0.0.1]:2,x p", after_reaching({{"b", "10.0.0.1", "x"}}));
  ASSERT_EQ(p.notices.size(), 1u);
  EXPECT_EQ(p.notices[0].id, MessageId::kSameMachine);
  EXPECT_EQ(p.notices[0].sentence, "hosts b, 10.0.0.1 and x are the same machine; their slots are added up");
  EXPECT_EQ(p.hosts[2].slots, 5);
}

TEST(Hosts, AMachineThatIsThisOneNeedsNoWayToIt) {
  const Plan p = plan("-H a:2,localhost:1 p", after_reaching({{"a", "c01.cluster"}}));
  EXPECT_EQ(in_words(p), "c01.cluster:012");
  EXPECT_TRUE(p.hosts[0].local);
  EXPECT_EQ(p.hosts[0].slots, 3);
  EXPECT_EQ(p.notices.at(0).sentence, "hosts c01.cluster and a are the same machine; their slots are added up");
}

TEST(Hosts, RanksForHostsThatAreOneMachineMayBeTooMany) {
  const Surroundings here = after_reaching({{"a", "b"}});
  expect_says(refusal("-np 2 -N 1 -H a,b p", here).message(), {"2 ranks with -N 1 need 2 hosts, and there is one"});
}

TEST(Hosts, AUserMakesAnyHostOneToBeReached) {
  const Plan p = plan("-H ann@localhost:2 p");
  EXPECT_FALSE(p.hosts[0].local);
  EXPECT_EQ(p.hosts[0].name, "localhost");
  EXPECT_EQ(p.hosts[0].user, "ann");
}

TEST(Hosts, OneHostWithTwoUsersIsRefusedCitingBothPlaces) {
  Options given = options("-np 2 p");
  given.hosts = {{{"a", 1, "ann", 0, "line 1 of hosts"}, {"b"}, {"a", 1, "bob", 0, "line 7 of hosts"}}, Source::kFlag};
  try {
    make_plan(given, surroundings());
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.id(), MessageId::kHosts);
    expect_says(error.message(), {"host a", "user ann", "line 1 of hosts", "user bob", "line 7 of hosts"});
  }
  given.hosts.value = {{"a", 1, "", 22, "line 1 of hosts"}, {"a", 1, "", 2222, "line 2 of hosts"}};
  EXPECT_THROW(make_plan(given, surroundings()), UsageError);
}

TEST(Hosts, SlotsOfSeveralAreNamed) {
  expect_says(refusal("-np 8 -H a:2,b:3 p").message(), {"8 ranks", "5 slots", "2 hosts", "a: 2, b: 3"});
  expect_says(refusal("-np 8 -N 3 -H a:4,b:4 p").message(), {"8 ranks", "-N 3", "3 hosts", "there are 2"});
}

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

#include "launcher/plan/allocation.h"

#include <gtest/gtest.h>

#include "launcher/plan/planned.h"

namespace aiacc::launcher {
namespace {

using namespace test;

std::string listed(const std::vector<HostSpec>& hosts) {
  std::string text;
  for (const HostSpec& host : hosts) text += (text.empty() ? "" : " ") + host.name + ":" + std::to_string(host.slots);
  return text;
}

// "NAME HOST:SLOTS ...", of variables, and of a file with that content.
std::string found(const Words& variables, const std::string& content = "") {
  const ReadList read = [&content](const std::string&, const std::string&) { return content; };
  const std::optional<Allocation> allocation = find_allocation(Environment(variables), "c01", read);
  return allocation ? allocation->name + ": " + listed(allocation->hosts) : "none";
}

std::string refused(const Words& variables, const std::string& content = "") {
  try {
    ADD_FAILURE() << "accepted: " << found(variables, content);
    return "";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.id(), MessageId::kHosts);
    EXPECT_EQ(error.message().find('\n'), std::string::npos);
    return error.message();
  }
}

Words slurm(const std::string& nodes, const std::string& tasks = "") {
  Words variables = {"SLURM_JOB_ID=77", "SLURM_JOB_NODELIST=" + nodes};
  if (!tasks.empty()) variables.push_back("SLURM_TASKS_PER_NODE=" + tasks);
  return variables;
}

TEST(Allocation, ListsOfNodes) {
  const auto expanded = [](const std::string& text) { return expand_node_list("LIST", text); };
  EXPECT_EQ(expanded("n1"), (Words{"n1"}));
  EXPECT_EQ(expanded("n[1-3,07-09],login"), (Words{"n1", "n2", "n3", "n07", "n08", "n09", "login"}));
  EXPECT_EQ(expanded("n[098-101]"), (Words{"n098", "n099", "n100", "n101"}));
  EXPECT_EQ(expanded("n[9-10].cluster"), (Words{"n9.cluster", "n10.cluster"}));
  EXPECT_EQ(expanded("r[1-2]n[0,3]"), (Words{"r1n0", "r1n3", "r2n0", "r2n3"}));
  EXPECT_EQ(expanded("n[1-100000]").size(), 100'000u);
}

TEST(Allocation, WhatIsNoListOfNodes) {
  for (const char* bad :
       {"", ",", "n1,", ",n1", "n[", "n]", "n[1", "n[]", "n[1-]", "n[-1]", "n[a]", "n[3-1]", "n[1,,2]", "n[[1]]",
        "n[1-100001]", "n[1-1000]m[1-1000]", "n[0-99999],m", "n[0-9999999999]"}) {
    EXPECT_THROW(expand_node_list("LIST", bad), UsageError) << bad;
  }
  expect_says(refused(slurm("n[3-1]")), {"SLURM_JOB_NODELIST", "n[3-1]", "--host"});
}

TEST(Allocation, OfSlurm) {
  EXPECT_EQ(found(slurm("n[1-4]", "2(x3),1")), "Slurm job 77: n1:2 n2:2 n3:2 n4:1");
  EXPECT_EQ(found(slurm("n[1-2]")), "Slurm job 77: n1:1 n2:1");
  EXPECT_EQ(found(slurm("n[1-2]", "1")), "Slurm job 77: n1:1 n2:1") << "of a step on one node";
  EXPECT_EQ(found({"SLURM_JOB_NODELIST=n1"}), "none") << "no job";
  EXPECT_EQ(found({"SLURM_JOB_ID=77"}), "none");
  for (const char* bad : {"0", "x", "2(x3", "2(x0)", "2(x)", "2,,1", "1(x100001)", "-1", "(x2)"}) {
    expect_says(refused(slurm("n1", bad)), {"SLURM_TASKS_PER_NODE", bad});
  }
  expect_says(refused(slurm("n;x")), {"SLURM_JOB_NODELIST", "no host name has"});
  expect_says(refused(slurm("-oProxyCommand=x")), {"begins with a dash"});
}

TEST(Allocation, OfOthers) {
  EXPECT_EQ(found({"PBS_JOBID=5.server", "PBS_NODEFILE=/f"}, "a\na\nb\n"), "PBS job 5.server: a:1 a:1 b:1");
  EXPECT_EQ(found({"PBS_NODEFILE=/f"}, "a\n"), "none");
  EXPECT_EQ(found({"LSB_JOBID=6", "LSB_MCPU_HOSTS=a 4 b 2 "}), "LSF job 6: a:4 b:2");
  EXPECT_EQ(found({"LSB_JOBID=6", "LSB_DJOB_HOSTFILE=/f"}, "a\nb\nb\n"), "LSF job 6: a:1 b:1 b:1");
  EXPECT_EQ(found({"LSB_JOBID=6"}), "none");
  EXPECT_EQ(found({"JOB_ID=7", "PE_HOSTFILE=/f"}, "a 2 all.q@a UNDEFINED\nb 1 all.q@b <NULL>\n"),
            "Grid Engine job 7: a:2 b:1");
  EXPECT_EQ(found({"JOB_ID=7"}), "none");
  EXPECT_EQ(found({"K_MPI_JOB_ROLE=launcher"}, "w-0.svc slots=2\nw-1.svc slots=2\n"),
            "MPI Operator: w-0.svc:2 w-1.svc:2");
  EXPECT_EQ(found({"K_MPI_JOB_ROLE=worker"}, "w-0 slots=2\n"), "none");
}

TEST(Allocation, AFileThatIsNotHereGivesNoHosts) {
  const ReadList none = [](const std::string&, const std::string&) { return std::nullopt; };
  for (const Words& variables : {Words{"PBS_JOBID=5", "PBS_NODEFILE=/f"}, Words{"LSB_JOBID=6", "LSB_DJOB_HOSTFILE=/f"},
                                 Words{"JOB_ID=7", "PE_HOSTFILE=/f"}, Words{"K_MPI_JOB_ROLE=launcher"}}) {
    EXPECT_FALSE(find_allocation(Environment(variables), "c01", none)) << variables.back();
  }
}

TEST(Allocation, ThisHostUnderANameWithADomain) {
  const Words pbs = {"PBS_JOBID=5", "PBS_NODEFILE=/f"};
  EXPECT_EQ(found(pbs, "c01.cluster\nc02.cluster\nc01.cluster\n"), "PBS job 5: c01:1 c02.cluster:1 c01:1");
  EXPECT_EQ(found(pbs, "c01.a\nc01.b\n"), "PBS job 5: c01.a:1 c01.b:1") << "which of them it is, is not known";
  EXPECT_EQ(found(pbs, "c01\nc01.b\n"), "PBS job 5: c01:1 c01.b:1");
  EXPECT_EQ(found(pbs, "c011.a\n"), "PBS job 5: c011.a:1");
}

TEST(Allocation, NotInsideOfARankNorOfAHeterogeneousJob) {
  Words variables = slurm("n[1-2]");
  variables.push_back("AIACC_AGENT=local:x");
  EXPECT_EQ(found(variables), "none");
  variables.back() = "SLURM_HET_SIZE=2";
  expect_says(refused(variables), {"heterogeneous", "--host"});
}

TEST(Allocation, MoreRanksThanTheManagerGaveSlots) {
  Options given = options("-np 5 p");
  given.hosts.value = {{"n1", 2}, {"n2", 2}};
  given.hosts.source = Source::kAllocation;
  given.allocation = "Slurm job 77";
  try {
    make_plan(given, surroundings());
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    expect_says(error.message(),
                {"5 ranks for 4 slots on 2 hosts (n1: 2, n2: 2)", "Slurm job 77 has given", "ask it for more tasks"});
  }
  given.no_allocation = "no file";
  given.ranks.value = 4;
  EXPECT_EQ(make_plan(given, surroundings()).notices.at(0).sentence, "no file");
}

TEST(Allocation, WhatOthersCannotMean) {
  for (const char* bad : {"a", "a 4 b", "a x", "a 0"}) {
    expect_says(refused({"LSB_JOBID=6", std::string("LSB_MCPU_HOSTS=") + bad}), {"LSB_MCPU_HOSTS", bad});
  }
  expect_says(refused({"JOB_ID=7", "PE_HOSTFILE=/f"}, "a\n"), {"PE_HOSTFILE", "/f"});
  expect_says(refused({"JOB_ID=7", "PE_HOSTFILE=/f"}, "\n"), {"names no host"});
  expect_says(refused({"PBS_JOBID=5", "PBS_NODEFILE=/f"}, "\n"), {"/f", "names no host"});
}

TEST(Allocation, TheSlurmJobAroundUs) {
  const auto job = [](const Words& variables) { return slurm_job(Environment(variables)); };
  EXPECT_EQ(job(slurm("n[1-2]")).nodes, (Words{"n1", "n2"}));
  EXPECT_EQ(job(slurm("n[1-2]")).own_name, "");
  Words on_node = slurm("n[1-2]");
  on_node.push_back("SLURMD_NODENAME=n2");
  EXPECT_EQ(job(on_node).own_name, "n2");
  on_node.back() = "SLURMD_NODENAME=n7";
  EXPECT_EQ(job(on_node).own_name, "") << "of an earlier job";
  EXPECT_TRUE(job({"SLURM_JOB_NODELIST=n1"}).nodes.empty());
  EXPECT_TRUE(job(slurm("n[")).nodes.empty()) << "who names other hosts need not care";
}

Surroundings in_a_slurm_job() {
  Surroundings here = surroundings();
  here.slurm = {{"n1", "n2", "n3"}, "n1", true};
  here.environment.insert(here.environment.end(), {"SLURM_JOB_ID=77", "SLURM_NTASKS=6", "SLURM_PROCID=0",
                                                   "SLURM_CPUS_ON_NODE=4", "SLURM_STEP_ID=3", "SLURM_CONF=/etc/here"});
  return here;
}

TEST(Allocation, NodesOfTheJobAreReachedBySrun) {
  const Surroundings here = in_a_slurm_job();
  const Plan made = plan("-H n1,n2,other,ann@n3 p", here);
  ASSERT_EQ(made.hosts.size(), 4u);
  EXPECT_TRUE(made.hosts[0].local) << "by its name in Slurm";
  EXPECT_EQ(made.hosts[0].name, "c01.cluster");
  EXPECT_FALSE(made.hosts[0].by_srun);
  EXPECT_TRUE(made.hosts[1].by_srun);
  EXPECT_FALSE(made.hosts[2].by_srun) << "not in the job";
  EXPECT_FALSE(made.hosts[3].by_srun) << "another user's account";
  EXPECT_EQ(plan("-H n1:2,c01.cluster p", here).hosts.at(0).slots, 3) << "two names of this host";
  Surroundings contained = here;
  contained.slurm.has_srun = false;
  EXPECT_FALSE(plan("-H n1,n2 p", contained).hosts.at(1).by_srun);
  EXPECT_TRUE(plan("-H n1,n2 p", contained).hosts.at(0).local);
}

TEST(Allocation, RanksOnAllHostsSeeTheJobAsAiaccrunDoes) {
  const Plan made = plan("-H n1,n2 p", in_a_slurm_job());
  const Environment remote(made.remote_environment);
  EXPECT_EQ(remote.get("SLURM_JOB_ID"), "77");
  EXPECT_EQ(remote.get("SLURM_NTASKS"), "6");
  for (const char* own : {"SLURM_PROCID", "SLURM_CPUS_ON_NODE", "SLURM_STEP_ID", "SLURM_CONF"}) {
    EXPECT_FALSE(remote.has(own)) << own;
  }
  const Environment there =
      without_slurm_step({"HOME=/h", "SLURM_NTASKS=1", "SLURM_CPUS_ON_NODE=8", "SLURM_CONF=/etc/there"});
  EXPECT_EQ(there.entries(), (Words{"HOME=/h", "SLURM_CPUS_ON_NODE=8", "SLURM_CONF=/etc/there"}));
  EXPECT_FALSE(remote.has("HOME"));
  Surroundings outside = in_a_slurm_job();
  outside.slurm = {};
  EXPECT_FALSE(Environment(plan("-H n1,n2 p", outside).remote_environment).has("SLURM_JOB_ID"));
}

}  // namespace
}  // namespace aiacc::launcher

#include "launcher/cli/mpirun.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "launcher/cli/failure.h"
#include "launcher/cli/mpirun_table.h"
#include "launcher/cli/options_table.h"
#include "launcher/plan/planned.h"

namespace aiacc::launcher {
namespace {

using test::Words;

// The only remark that a command line causes.
std::string remark(const std::string& line) {
  const Options o = test::options(line);
  EXPECT_EQ(o.ignored.size(), 1u) << line;
  return o.ignored.empty() ? "" : o.ignored.front();
}

void expect_remark(const std::string& line, const Words& parts) {
  const std::string said = remark(line);
  EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  for (const std::string& part : parts) EXPECT_NE(said.find(part), std::string::npos) << line << ": " << said;
}

Options silent(const std::string& line) {
  Options o = test::options(line);
  EXPECT_TRUE(o.ignored.empty()) << line << ": " << o.ignored.front();
  return o;
}

std::string refused(const std::string& line) {
  try {
    test::options(line);
  } catch (const UsageError& error) {
    return error.message();
  }
  ADD_FAILURE() << "accepted: " << line;
  return "";
}

TEST(Mpirun, SpellingsOfWhatAiaccrunHas) {
  EXPECT_EQ(silent("-c 3 p").ranks.value, 3);
  EXPECT_EQ(silent("-hosts a:2,b p").hosts.value, (std::vector<HostSpec>{{"a", 2}, {"b", 1}}));
  EXPECT_EQ(silent("-f hosts p").host_file.value, "hosts");
  for (const char* line : {"-npernode 2 p", "--npernode=2 p", "-perhost 2 p", "-ppn 2 p", "-N 2 p"}) {
    EXPECT_EQ(silent(line).ranks_per_host.value, 2) << line;
  }
  EXPECT_EQ(silent("-pernode p").ranks_per_host.value, 1);
  EXPECT_EQ(silent("-launcher-exec lsh p").launch_agent.value, "lsh");
  EXPECT_EQ(silent("-mca plm_rsh_agent lsh p").launch_agent.value, "lsh");
  EXPECT_TRUE(silent("-l p").tag_output.value);
  EXPECT_TRUE(silent("-prepend-rank p").tag_output.value);
  EXPECT_TRUE(silent("--output tag p").tag_output.value);
  EXPECT_TRUE(silent("-do-not-launch p").dry_run.value);
  EXPECT_EQ(silent("--bynode p").map_by.value, MapBy::kNode);
  EXPECT_EQ(silent("-bind-to-core p").bind_to.value, BindTo::kCore);
  EXPECT_EQ(silent("-launcher ssh --allow-run-as-root --noprefix p").command, Words{"p"});
}

TEST(Mpirun, Variables) {
  using Forwards = std::vector<Forward>;
  EXPECT_EQ(silent("-genv A 1 -env B=2 -genv C -l p").forward.value, (Forwards{{"A", "1"}, {"B", "2"}, {"C", "-l"}}));
  EXPECT_EQ(silent("-genv A x=y p").forward.value, (Forwards{{"A", "x=y"}}));
  EXPECT_EQ(silent("-genvlist A,B p").forward.value, (Forwards{{"A", {}}, {"B", {}}}));
  EXPECT_EQ(silent("-genvall p").forward.value, (Forwards{{"*", {}}}));
  EXPECT_EQ(silent("-envall p").forward.value, (Forwards{{"*", {}}}));
  EXPECT_EQ(refused("-genv A"), "-genv needs two values: -genv NAME VALUE");
  EXPECT_EQ(refused("-genv"), "-genv needs a value: -genv NAME VALUE");

  const Plan all = test::plan("-genvall -H far:1 p");
  EXPECT_EQ(test::of_rank(all, 0).get("FOOD"), "3") << "as Hydra, also on other hosts";
}

TEST(Mpirun, PlacesWithQualifiers) {
  const Options o = silent("--map-by ppr:2:node:OVERSUBSCRIBE p");
  EXPECT_EQ(o.ranks_per_host.value, 2);
  EXPECT_TRUE(o.oversubscribe.value);
  EXPECT_FALSE(o.map_by.given());
  EXPECT_TRUE(silent("--map-by :oversubscribe p").oversubscribe.value);
  EXPECT_EQ(silent("--map-by Socket:NOOVERSUBSCRIBE p").map_by.value, MapBy::kPackage);
  EXPECT_EQ(silent("--bind-to core:overload-allowed p").bind_to.value, BindTo::kCore);
  EXPECT_TRUE(silent("--bind-to core:REPORT p").report_bindings.value);
  EXPECT_EQ(silent("--bind-to board p").bind_to.value, BindTo::kNone);

  expect_remark("--map-by slot:PE=2 p", {"--map-by :PE=2 has no effect", "--bind-to auto"});
  expect_remark("--map-by ppr:1:socket p", {"--map-by ppr:1:socket has no effect", "-N"});
  expect_remark("--bind-to hwthread p", {"--bind-to hwthread is taken for --bind-to core"});
  EXPECT_EQ(test::options("--map-by l3cache p").map_by.value, MapBy::kNuma);
  expect_remark("--bind-to user:0+1,2 p", {"--bind-to user:0+1,2 has no effect", "taskset"});
  EXPECT_NE(refused("--bind-to cor p").find("nearest is core"), std::string::npos);
}

TEST(Mpirun, WhatHasNoEffectIsSaidOnce) {
  expect_remark("-mca btl self,tcp --gmca pml ob1 --mca mpi_warn_on_fork 0 -x A=1 p",
                {"-mca btl self,tcp, --gmca pml ob1, --mca mpi_warn_on_fork 0 have no effect: ", "-x", "aiacc-env"});
  expect_remark("--mca btl_tcp_if_include eth0 p", {"--mca btl_tcp_if_include eth0 has no effect: ", "ssh reached it"});
  expect_remark("-iface eth0 p", {"-iface eth0 has no effect"});
  expect_remark("-rmk slurm p", {"-rmk slurm has no effect", "--hostfile"});
  expect_remark("-launcher slurm p", {"-launcher slurm", "--launch-agent"});
  expect_remark("--prefix /opt/mpi p", {"--prefix /opt/mpi", "PATH"});
  expect_remark("--timestamp-output p", {"ts"});
  expect_remark("-v p", {"-v has no effect", "--dry-run", "AIACC_LOG"});
  EXPECT_EQ(test::options("-mca a b -iface c p").ignored.size(), 2u);
  expect_remark("--gloo p", {"--gloo has no effect", "neither Gloo nor MPI"});
  expect_remark("--start-timeout 30 p", {"--start-timeout 30 has no effect", "AIACC_INIT_TIMEOUT"});
  expect_remark("--network-interfaces eth0 p", {"--network-interfaces eth0 has no effect", "ssh reached it"});
  expect_remark("--timeline-filename a.json --timeline-mark-cycles p",
                {"--timeline-filename a.json", "AIACC_TIMELINE"});
  expect_remark("--autotune --autotune-log-file a p", {"--autotune", "AIACC_TUNE"});
  EXPECT_NE(refused("--check-build p").find("aiacc-info"), std::string::npos);

  const Plan plan = test::plan("-np 2 -mca pml ob1 p");
  ASSERT_EQ(plan.notices.size(), 1u);
  EXPECT_EQ(plan.notices[0].id, MessageId::kIgnored);
  EXPECT_TRUE(is_remark(MessageId::kIgnored) && !is_remark(MessageId::kRankExit));
}

TEST(Mpirun, OptionsOfTorchrun) {
  EXPECT_EQ(silent("--standalone --nproc_per_node=2 --no-python p").ranks_per_host.value, 2);
  EXPECT_EQ(silent("--nproc-per-node 3 p").ranks_per_host.value, 3);
  const auto cpus = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_EQ(silent("--nproc_per_node=cpu p").ranks_per_host.value, cpus);
  EXPECT_EQ(test::options("--nproc-per-node AUTO p").ranks_per_host.value, cpus);
  expect_remark(
      "--nproc-per-node auto p",
      {"--nproc-per-node auto is taken for --ranks-per-host " + std::to_string(cpus), "GPUs are not counted"});
  EXPECT_NE(refused("--nproc-per-node gpu p").find("--nproc-per-node gpu is refused: aiaccrun does not count GPUs"),
            std::string::npos);
  expect_remark("--master_addr a --master_port 29500 --rdzv-backend c10d p", {"--master_addr a", "MASTER_ADDR"});
  expect_remark("--log-dir out -t 3 p", {"--log-dir out, -t 3 have no effect"});
  EXPECT_NE(refused("--nnodes 2 p").find("--nnodes is refused: hosts are named by --host"), std::string::npos);
  EXPECT_NE(refused("--node_rank 1 p").find("start aiaccrun once"), std::string::npos);
  EXPECT_EQ(silent("--shutdown-timeout 5 p").kill_grace.value, std::chrono::seconds(5));
  EXPECT_NE(refused("--nnodes 1:2 p").find("--nnodes is refused"), std::string::npos);
  EXPECT_EQ(silent("--nnodes=1 --node-rank 0 --nproc_per_node 2 p").ranks_per_host.value, 2);
  EXPECT_EQ(silent("--nnodes 1:1 --nproc_per_node 2 p").ranks_per_host.value, 2);
  EXPECT_NE(refused("--nnodes 0 p").find("--nnodes is refused"), std::string::npos);
  expect_remark("--virtual_local_rank p", {"--virtual_local_rank has no effect", "LOCAL_RANK"});
  EXPECT_NE(refused("--run_path train.py").find("write python FILE"), std::string::npos);
  EXPECT_NE(refused("-m package.train").find("write python -m NAME"), std::string::npos);
}

TEST(Mpirun, SeveralProgramsAreRefused) {
  for (const char* line : {"-np 1 p : -np 1 q", "-np 1 p a :"}) {
    EXPECT_EQ(refused(line).find("a ':' by itself begins another program: several programs in one job are not"), 0u);
  }
  EXPECT_NE(refused("--app file").find("--app is refused: several programs"), std::string::npos);
  EXPECT_EQ(silent("-np 1 p a:b ::").command, (Words{"p", "a:b", "::"}));
}

TEST(MpirunTable, EachRowIsReadAndMeansWhatThereIs) {
  std::set<std::string> seen;
  for (const MpirunOption& option : mpirun_options()) {
    std::string names(option.name);
    if (!option.aliases.empty()) names += " " + std::string(option.aliases);
    std::istringstream in(names);
    for (std::string name; in >> name;) {
      EXPECT_TRUE(seen.insert(name).second) << name;
      EXPECT_EQ(find_option(name), nullptr) << name << " is an option of aiaccrun";
    }
    EXPECT_FALSE(option.text.empty()) << option.name;
    EXPECT_FALSE(option.text.ends_with('.')) << option.text;
    if (option.effect == MpirunOption::Effect::kMeans) {
      EXPECT_NE(find_option(option.text.substr(0, option.text.find('='))), nullptr) << option.name;
    }
  }
  for (const MpirunValue& value : mpirun_values()) {
    if (!value.means.empty()) {
      EXPECT_NE(find_option(value.means.substr(0, value.means.find('='))), nullptr) << value.value;
    }
  }
}

}  // namespace
}  // namespace aiacc::launcher

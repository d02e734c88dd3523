#include "runtime/bootstrap_choice.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/error.h"

namespace aiacc {
namespace {

// A launcher's marks. All of `marks` are there when it started us; `size` says how many ranks (the first that is set counts).
struct ForeignLauncher {
  const char* name;
  std::array<const char*, 2> marks;
  std::array<const char*, 2> size;
};

// A batch script of Slurm has SLURM_PROCID=0 too, but no step of its own; a PMIx rank learns its size from the server only.
constexpr ForeignLauncher kForeign[] = {
    {"Open MPI's mpirun", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"OMPI_COMM_WORLD_SIZE", nullptr}},
    {"a PMI launcher (MPICH's mpiexec, Intel MPI, srun --mpi=pmi2)", {"PMI_RANK", "PMI_SIZE"}, {"PMI_SIZE", nullptr}},
    {"MVAPICH's launcher", {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"}, {"MV2_COMM_WORLD_SIZE", nullptr}},
    {"srun", {"SLURM_PROCID", "SLURM_STEP_ID"}, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}},
    {"Flux", {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"}, {"FLUX_JOB_SIZE", nullptr}},
    {"jsrun", {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"}, {"JSM_NAMESPACE_SIZE", nullptr}},
    {"horovodrun", {"HOROVOD_RANK", "HOROVOD_SIZE"}, {"HOROVOD_SIZE", nullptr}},
    {"torchrun", {"TORCHELASTIC_RUN_ID", "WORLD_SIZE"}, {"WORLD_SIZE", nullptr}},
    {"a launcher in torch's manner", {"WORLD_SIZE", nullptr}, {"WORLD_SIZE", nullptr}},
    {"aiaccrun, but AIACC_AGENT was taken out of the environment", {"AIACC_SIZE", nullptr}, {"AIACC_SIZE", nullptr}},
};

constexpr const char* kCure =
    "Start the program with aiaccrun; or set AIACC_SINGLETON=1 if each process is meant to be a world of its own.";

std::optional<int> number(const std::string& text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

bool set(const EnvironmentLookup& environment, const char* name) { return environment(name).value_or("") != ""; }

// Throws if another launcher started more ranks than this one.
void refuse_foreign(const EnvironmentLookup& environment) {
  bool sized = false;
  for (const ForeignLauncher& launcher : kForeign) {
    bool marked = true;
    for (const char* mark : launcher.marks) marked = marked && (mark == nullptr || set(environment, mark));
    if (!marked) continue;
    for (const char* name : launcher.size) {
      if (name == nullptr || !set(environment, name)) continue;
      const std::string text = *environment(name);
      const std::optional<int> size = number(text);
      if (!size || *size > 1) {
        throw Error(
            Code::kInvalidState,
            fmt::format("{}={} says that this process is one of several ranks of {}, and there is no way to meet "
                        "the others yet. {}",
                        name, text, launcher.name, kCure));
      }
      sized = true;
      break;
    }
  }
  if (!sized && set(environment, "PMIX_NAMESPACE") && set(environment, "PMIX_RANK")) {
    throw Error(
        Code::kInvalidState,
        fmt::format("PMIX_RANK={} says that a PMIx launcher started this process, perhaps as one of several ranks, "
                    "and there is no way to ask it yet. {}",
                    *environment("PMIX_RANK"), kCure));
  }
}

int required_number(const EnvironmentLookup& environment, const char* name) {
  const std::string text = environment(name).value_or("");
  const std::optional<int> value = number(text);
  if (!value || *value < 0) {
    throw Error(Code::kInvalidState,
                fmt::format("AIACC_AGENT is set, but {} is '{}', not a number: aiaccrun sets both; do not change them",
                            name, text));
  }
  return *value;
}

}  // namespace

BootstrapChoice choose_bootstrap(const std::optional<GivenIdentity>& given, const EnvironmentLookup& environment) {
  BootstrapChoice choice;
  if (given) {
    if (given->size < 1 || given->rank < 0 || given->rank >= given->size) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("rank {} of world_size {} was given: a rank is at least 0 and below "
                              "the size, which is at least 1",
                              given->rank, given->size));
    }
    choice.rank = given->rank;
    choice.size = given->size;
    if (given->size == 1) return choice;
  }
  if (const std::string agent = environment("AIACC_AGENT").value_or(""); !agent.empty()) {
    choice.kind = BootstrapChoice::Kind::kAgent;
    choice.agent = agent;
    if (!given) {
      choice.rank = required_number(environment, "AIACC_RANK");
      choice.size = required_number(environment, "AIACC_SIZE");
    }
    if (set(environment, "AIACC_LOCAL_SIZE")) {
      choice.several_hosts = required_number(environment, "AIACC_LOCAL_SIZE") < choice.size;
    }
    return choice;
  }
  if (const std::string where = environment("AIACC_RENDEZVOUS").value_or(""); !where.empty()) {
    throw Error(Code::kUnsupported,
                fmt::format("AIACC_RENDEZVOUS={}: meeting without aiaccrun comes in a later version. "
                            "Start the program with aiaccrun, or unset the variable.",
                            where));
  }
  if (given) {
    throw Error(
        Code::kInvalidState,
        fmt::format("rank {} of {} was given, but AIACC_AGENT is not set, so there is no way to meet the others. Start "
                    "the program with aiaccrun; for threads as ranks use aiacc_context_create_local.",
                    given->rank, given->size));
  }
  const std::string singleton = environment("AIACC_SINGLETON").value_or("");
  if (singleton.empty() || singleton == "0") refuse_foreign(environment);
  choice.rank = 0;
  choice.size = 1;
  return choice;
}

}  // namespace aiacc

#include "runtime/bootstrap/bootstrap_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "base/wire/secret_file.h"

namespace aiacc {
namespace {

// The environment variables by which a launcher is recognised. A process that it started has all of `marks`; the first of
// `size` that is set has the number of ranks, and `rank` this process's rank.
struct ForeignLauncher {
  const char* name;
  std::array<const char*, 2> marks;
  std::array<const char*, 2> size;
  const char* rank;
};

// The order is from the innermost launcher outwards: torchrun runs under srun and mpirun, mpirun under srun. A batch script of
// Slurm has SLURM_PROCID=0 too, but no step id. PMIx is not listed, because its ranks learn their number only from the server.
constexpr ForeignLauncher kForeign[] = {
    {"torchrun", {"TORCHELASTIC_RUN_ID", "WORLD_SIZE"}, {"WORLD_SIZE", nullptr}, "RANK"},
    {"Open MPI's mpirun",
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_SIZE", nullptr},
     "OMPI_COMM_WORLD_RANK"},
    {"a PMI launcher (MPICH's mpiexec, Intel MPI, srun --mpi=pmi2)",
     {"PMI_RANK", "PMI_SIZE"},
     {"PMI_SIZE", nullptr},
     "PMI_RANK"},
    {"MVAPICH's launcher",
     {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
     {"MV2_COMM_WORLD_SIZE", nullptr},
     "MV2_COMM_WORLD_RANK"},
    {"srun", {"SLURM_PROCID", "SLURM_STEP_ID"}, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, "SLURM_PROCID"},
    {"Flux", {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"}, {"FLUX_JOB_SIZE", nullptr}, "FLUX_TASK_RANK"},
    {"jsrun", {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"}, {"JSM_NAMESPACE_SIZE", nullptr}, "JSM_NAMESPACE_RANK"},
    {"horovodrun", {"HOROVOD_RANK", "HOROVOD_SIZE"}, {"HOROVOD_SIZE", nullptr}, "HOROVOD_RANK"},
    {"a launcher in torch's manner", {"WORLD_SIZE", nullptr}, {"WORLD_SIZE", nullptr}, "RANK"},
    {"aiaccrun, but AIACC_AGENT was taken out of the environment",
     {"AIACC_SIZE", nullptr},
     {"AIACC_SIZE", nullptr},
     "AIACC_RANK"},
};

constexpr const char* kCure =
    "Start the program with aiaccrun; or set AIACC_RENDEZVOUS and AIACC_SECRET_FILE, so that the ranks can meet; or "
    "set "
    "AIACC_SINGLETON=1 if each process is meant to be a world of its own.";

std::optional<int> number(const std::string& text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

bool set(const EnvironmentLookup& environment, const char* name) { return environment(name).value_or("") != ""; }

bool marked(const ForeignLauncher& launcher, const EnvironmentLookup& environment) {
  return std::all_of(launcher.marks.begin(), launcher.marks.end(),
                     [&](const char* mark) { return mark == nullptr || set(environment, mark); });
}

// Throws if another launcher started more ranks than this one.
void refuse_foreign(const EnvironmentLookup& environment) {
  bool sized = false;
  for (const ForeignLauncher& launcher : kForeign) {
    if (!marked(launcher, environment)) continue;
    for (const char* name : launcher.size) {
      if (name == nullptr || !set(environment, name)) continue;
      const std::string text = *environment(name);
      const std::optional<int> size = number(text);
      if (!size || *size > 1) {
        throw Error(
            Code::kInvalidState,
            fmt::format("{}={} says that this process is one of several ranks of {}, and there is no way to meet "
                        "the others. {}",
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

// The value of a variable that holds the rank or the size. `way` names the bootstrap that needs it, for the error sentence.
int identity_number(const EnvironmentLookup& environment, const std::string& way, const char* name) {
  const std::string text = environment(name).value_or("");
  const std::optional<int> value = number(text);
  if (!value || *value < 0) {
    throw Error(Code::kInvalidState,
                fmt::format("{} needs to know which rank this is, and {} is {}, not a number: set AIACC_RANK and "
                            "AIACC_SIZE for each process",
                            way, name, text.empty() ? "not set" : fmt::format("'{}'", text)));
  }
  return *value;
}

// Rank and size of a process that another launcher started: from AIACC_RANK and AIACC_SIZE, or else from the variables of the
// innermost launcher.
GivenIdentity find_identity(const EnvironmentLookup& environment, const std::string& way) {
  const char* rank = nullptr;
  const char* size = nullptr;
  if (set(environment, "AIACC_RANK") || set(environment, "AIACC_SIZE")) {
    rank = "AIACC_RANK";
    size = "AIACC_SIZE";
  }
  for (const ForeignLauncher& launcher : kForeign) {
    if (rank != nullptr || !marked(launcher, environment)) continue;
    rank = launcher.rank;
    for (const char* name : launcher.size) {
      if (size == nullptr && name != nullptr && set(environment, name)) size = name;
    }
    if (size == nullptr) rank = nullptr;
  }
  if (rank == nullptr) {
    throw Error(
        Code::kInvalidState,
        fmt::format("{} needs to know which rank this is, and nothing tells: set AIACC_RANK and AIACC_SIZE for each "
                    "process, or start the program with torchrun, srun or mpirun",
                    way));
  }
  const GivenIdentity found{identity_number(environment, way, rank), identity_number(environment, way, size)};
  if (found.size < 1 || found.rank >= found.size) {
    throw Error(Code::kInvalidState, fmt::format("{}={} and {}={} cannot both be true: ranks are 0 to size - 1", rank,
                                                 found.rank, size, found.size));
  }
  return found;
}

// Refuses the port of torch's own store, even if nobody listens there yet.
void refuse_master_port(const EnvironmentLookup& environment, const std::string& where) {
  const std::string port = environment("MASTER_PORT").value_or("");
  if (port.empty() || !where.ends_with(":" + port)) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("AIACC_RENDEZVOUS={}: port {} is MASTER_PORT, where torch's store listens; choose another",
                          where, port));
}

BootstrapChoice meet(BootstrapChoice choice, const std::optional<GivenIdentity>& given,
                     const EnvironmentLookup& environment, const std::string& way) {
  const GivenIdentity me = given ? *given : find_identity(environment, way);
  choice.rank = me.rank;
  choice.size = me.size;
  if (me.size == 1) choice.kind = BootstrapChoice::Kind::kSingleton;
  return choice;
}

}  // namespace

BootstrapChoice choose_bootstrap(const std::optional<GivenIdentity>& given, const GivenMeans& means,
                                 const EnvironmentLookup& environment) {
  BootstrapChoice choice;
  choice.job = means.job.empty() ? environment("AIACC_JOB").value_or("") : means.job;
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
  if (means.store) {
    choice.kind = BootstrapChoice::Kind::kStore;
    return meet(choice, given, environment, "rendezvous through the store");
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
    choice.several_hosts = choice.several_hosts || environment("AIACC_NEW_HOSTS") == "yes";
    return choice;
  }
  if (const std::string where = environment("AIACC_RENDEZVOUS").value_or(""); !where.empty()) {
    choice.kind = BootstrapChoice::Kind::kRendezvous;
    choice.rendezvous = where;
    choice = meet(choice, given, environment, "AIACC_RENDEZVOUS=" + where);
    if (choice.kind == BootstrapChoice::Kind::kSingleton) return choice;
    refuse_master_port(environment, where);
    choice.secret_file = environment("AIACC_SECRET_FILE").value_or("");
    if (choice.secret_file.empty()) {
      throw Error(
          Code::kInvalidState,
          fmt::format("AIACC_RENDEZVOUS={} needs a secret: make one with {}, bring the file to every host, and set "
                      "AIACC_SECRET_FILE to its path there",
                      where, wire::kMakeSecretFile));
    }
    return choice;
  }
  if (given) {
    throw Error(
        Code::kInvalidState,
        fmt::format("rank {} of {} was given, but AIACC_AGENT is not set, so there is no way to meet the others. Start "
                    "the program with aiaccrun, set AIACC_RENDEZVOUS, or give a store; for threads as ranks use "
                    "aiacc_context_create_local.",
                    given->rank, given->size));
  }
  const std::string singleton = environment("AIACC_SINGLETON").value_or("");
  if (singleton.empty() || singleton == "0") refuse_foreign(environment);
  choice.rank = 0;
  choice.size = 1;
  return choice;
}

}  // namespace aiacc

#include "launcher/plan/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_set>

namespace aiacc::launcher {

namespace {

constexpr const char* kTerminal = "AIACC_TERMINAL";
constexpr std::array<std::string_view, 16> kOwn = {
    "AIACC_RANK",     "AIACC_SIZE",     "AIACC_LOCAL_RANK", "AIACC_LOCAL_SIZE", "AIACC_HOST_INDEX",
    "AIACC_MIN_SIZE", "AIACC_MAX_SIZE", "AIACC_NEW_HOSTS",  "AIACC_AGENT",      kTerminal,
    "RANK",           "WORLD_SIZE",     "LOCAL_RANK",       "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT"};

constexpr std::array<std::string_view, 7> kHorovod = {"HOROVOD_RANK",       "HOROVOD_SIZE",       "HOROVOD_LOCAL_RANK",
                                                      "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE",
                                                      "HOROVOD_HOSTNAME"};

constexpr std::array<std::string_view, 5> kOmpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                                   "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                                   "OMPI_COMM_WORLD_NODE_RANK"};

// Other variables that identify a rank. Variables that describe an allocation (SLURM_NTASKS, SLURM_JOB_ID …) are kept.
constexpr std::array<std::string_view, 19> kForeign = {
    "PMIX_RANK",    "PMIX_NAMESPACE", "PMI_RANK",        "PMI_SIZE",           "PMI_FD",
    "PMI_PORT",     "PMI_ID",         "PMI_JOBID",       "MPI_LOCALRANKID",    "MPI_LOCALNRANKS",
    "SLURM_PROCID", "SLURM_LOCALID",  "SLURM_NODEID",    "FLUX_TASK_RANK",     "FLUX_TASK_LOCAL_ID",
    "GROUP_RANK",   "ROLE_RANK",      "ROLE_WORLD_SIZE", "TORCHELASTIC_RUN_ID"};
// Variables of aiaccrun's environment that ranks of other hosts get without -x.
constexpr std::array<std::string_view, 2> kForwarded = {"PATH", "LD_LIBRARY_PATH"};
constexpr std::array<std::string_view, 8> kForwardedPrefixes = {"AIACC_", "NCCL_", "UCX_",     "OMP_",
                                                                "PYTHON", "CUDA_", "HOROVOD_", "PERSEUS_"};
constexpr std::string_view kSlurm = "SLURM_";
// What Slurm says of a node, and of a step, and not of the job.
constexpr std::array<std::string_view, 6> kSlurmNode = {"SLURM_CONF",          "SLURM_CPUS_ON_NODE",
                                                        "SLURM_JOB_GPUS",      "SLURM_STEP_GPUS",
                                                        "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN"};
constexpr std::array<std::string_view, 5> kSlurmStep = {"SLURM_STEP", "SLURM_SRUN_", "SLURM_LAUNCH_NODE_IPADDR",
                                                        "SLURM_GTIDS", "SLURM_TASK_PID"};
constexpr std::string_view kNeverForwarded = "CUDA_VISIBLE_DEVICES";  // names devices of this host

constexpr std::array<std::string_view, 2> kForeignPrefixes = {"PMIX_SERVER_", "TORCHELASTIC_"};

template <std::size_t N>
bool among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string_view name_of_entry(std::string_view entry) { return entry.substr(0, entry.find('=')); }

void forward_all_that_begin(const std::string& pattern, const Environment& ours, const CompatEnv& families,
                            Environment& out) {
  const std::string_view prefix = std::string_view(pattern).substr(0, pattern.size() - 1);
  for (const std::string& entry : ours.entries()) {
    const std::string name(name_of_entry(entry));
    if (name.starts_with(prefix) && !is_set_by_launcher(name, families)) out.set(name, ours.get(name));
  }
}

bool is_for_every_host(std::string_view name) {
  if (name == kNeverForwarded) return false;
  const auto begins = [name](std::string_view prefix) { return name.starts_with(prefix); };
  return among(kForwarded, name) || std::any_of(kForwardedPrefixes.begin(), kForwardedPrefixes.end(), begins);
}

void apply_forwards(const Options& options, const Environment& ours, std::vector<Notice>& notices, Environment& out) {
  const CompatEnv& families = options.compat_env.value;
  for (const Forward& forward : options.forward.value) {
    if (forward.name.ends_with('*')) {
      forward_all_that_begin(forward.name, ours, families, out);
      continue;
    }
    if (is_set_by_launcher(forward.name, families)) {
      notices.push_back({MessageId::kVariable,
                         fmt::format("-x {} has no effect: aiaccrun sets this variable for each rank", forward.name)});
      continue;
    }
    if (!forward.value && !ours.has(forward.name)) {
      throw UsageError(MessageId::kVariable,
                       fmt::format("-x {0}: {0} is not set here; set it, or write -x {0}=VALUE", forward.name));
    }
    out.set(forward.name, forward.value ? std::string_view(*forward.value) : ours.get(forward.name));
  }
}

// Who only serves. MXNet's own variable (DMLC_ROLE) is not set: with it a server would never return from `import mxnet`.
void tell_of_servers(const Options& options, Environment& out) {
  if (options.servers.given()) out.set("AIACC_KV_SERVERS", std::to_string(options.servers.value));
}

// Ranks write to a pipe; this tells them that their output still reaches a terminal.
void tell_of_terminal(const Options& options, const Surroundings& here, Environment& out) {
  if (here.terminal && !options.tag_output.value) out.set(kTerminal, "yes");
}

}  // namespace

Environment::Environment(const std::vector<std::string>& entries) {
  std::unordered_set<std::string_view> seen;
  for (const std::string& entry : entries) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0 || !seen.insert(name_of_entry(entry)).second) continue;
    entries_.push_back(entry);
  }
}

std::size_t Environment::find(std::string_view name) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (name_of_entry(entries_[i]) == name) return i;
  }
  return npos;
}

std::string_view Environment::get(std::string_view name) const {
  const std::size_t at = find(name);
  return at == npos ? std::string_view{} : std::string_view(entries_[at]).substr(name.size() + 1);
}

void Environment::set(const std::string& name, std::string_view value) {
  std::string entry = fmt::format("{}={}", name, value);
  const std::size_t at = find(name);
  if (at == npos) {
    entries_.push_back(std::move(entry));
  } else {
    entries_[at] = std::move(entry);
  }
}

void Environment::remove(std::string_view name) {
  const std::size_t at = find(name);
  if (at != npos) entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
}

bool is_set_by_launcher(std::string_view name, const CompatEnv& families) {
  return among(kOwn, name) || (families.horovod && among(kHorovod, name)) || (families.ompi && among(kOmpi, name));
}

bool is_foreign_identity(std::string_view name) {
  for (const std::string_view prefix : kForeignPrefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return among(kForeign, name) || among(kHorovod, name) || among(kOmpi, name);
}

Environment without_identity(const std::vector<std::string>& ours, const CompatEnv& families) {
  std::vector<std::string> kept;
  for (const std::string& entry : ours) {
    const std::string_view name = name_of_entry(entry);
    if (!is_set_by_launcher(name, families) && !is_foreign_identity(name)) kept.push_back(entry);
  }
  return Environment(kept);
}

bool is_of_slurm_job(std::string_view name) {
  const auto begins = [name](std::string_view prefix) { return name.starts_with(prefix); };
  return name.starts_with(kSlurm) && !among(kSlurmNode, name) &&
         std::none_of(kSlurmStep.begin(), kSlurmStep.end(), begins);
}

Environment without_slurm_step(const std::vector<std::string>& own) {
  std::vector<std::string> kept;
  for (const std::string& entry : own) {
    if (!entry.starts_with(kSlurm) || among(kSlurmNode, name_of_entry(entry))) kept.push_back(entry);
  }
  return Environment(kept);
}

Environment common_environment(const Options& options, const Surroundings& here, std::vector<Notice>& notices) {
  Environment out = without_identity(here.environment, options.compat_env.value);
  apply_forwards(options, Environment(here.environment), notices, out);
  tell_of_servers(options, out);
  tell_of_terminal(options, here, out);
  return out;
}

Environment remote_environment(const Options& options, const Surroundings& here) {
  std::vector<std::string> kept;
  const Environment ours = without_identity(here.environment, options.compat_env.value);
  for (const std::string& entry : ours.entries()) {
    const std::string_view name = name_of_entry(entry);
    const bool of_job = !here.slurm.nodes.empty() && is_of_slurm_job(name);
    if (of_job || is_for_every_host(name)) kept.push_back(entry);
  }
  Environment out(kept);
  std::vector<Notice> said;  // already reported by common_environment()
  apply_forwards(options, Environment(here.environment), said, out);
  tell_of_servers(options, out);
  tell_of_terminal(options, here, out);
  return out;
}

std::vector<std::string> own_environment(const RankPlan& rank, const JobSize& job, const Plan& plan,
                                         const CompatEnv& families) {
  const std::string me = std::to_string(rank.rank);
  const std::string size = std::to_string(job.ranks);
  const std::string local = std::to_string(rank.local_rank);
  const std::string local_size = std::to_string(job.ranks_of_host);
  const std::string host = std::to_string(rank.host);

  Environment own;
  own.set("AIACC_RANK", me);
  own.set("AIACC_SIZE", size);
  own.set("AIACC_LOCAL_RANK", local);
  own.set("AIACC_LOCAL_SIZE", local_size);
  own.set("AIACC_HOST_INDEX", host);
  if (plan.min_size > 0) own.set("AIACC_MIN_SIZE", std::to_string(plan.min_size));
  if (plan.max_size > 0) own.set("AIACC_MAX_SIZE", std::to_string(plan.max_size));
  if (plan.gets_hosts) own.set("AIACC_NEW_HOSTS", "yes");
  if (plan.init_timeout > Duration::zero()) {
    own.set("AIACC_INIT_TIMEOUT",
            fmt::format("{}ms", std::chrono::ceil<std::chrono::milliseconds>(plan.init_timeout).count()));
  }
  own.set("RANK", me);
  own.set("WORLD_SIZE", size);
  own.set("LOCAL_RANK", local);
  own.set("LOCAL_WORLD_SIZE", local_size);
  if (families.horovod) {
    own.set("HOROVOD_RANK", me);
    own.set("HOROVOD_SIZE", size);
    own.set("HOROVOD_LOCAL_RANK", local);
    own.set("HOROVOD_LOCAL_SIZE", local_size);
    own.set("HOROVOD_CROSS_RANK", host);
    own.set("HOROVOD_CROSS_SIZE", std::to_string(job.hosts));
  }
  if (families.ompi) {
    own.set("OMPI_COMM_WORLD_RANK", me);
    own.set("OMPI_COMM_WORLD_SIZE", size);
    own.set("OMPI_COMM_WORLD_LOCAL_RANK", local);
    own.set("OMPI_COMM_WORLD_LOCAL_SIZE", local_size);
    own.set("OMPI_COMM_WORLD_NODE_RANK", local);
  }
  return own.entries();
}

std::vector<std::string> rank_environment(const Environment& common, const std::vector<std::string>& own,
                                          const Wiring& wiring, int threads) {
  std::vector<std::string> all = common.entries();
  if (!common.has("OMP_NUM_THREADS")) all.push_back(fmt::format("OMP_NUM_THREADS={}", threads));
  all.insert(all.end(), own.begin(), own.end());
  all.push_back(fmt::format("AIACC_AGENT={}", wiring.agent));
  all.push_back(fmt::format("MASTER_ADDR={}", wiring.master_address));
  all.push_back(fmt::format("MASTER_PORT={}", wiring.master_port));
  return all;
}

}  // namespace aiacc::launcher

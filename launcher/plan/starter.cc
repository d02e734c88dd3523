#include "launcher/plan/starter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "launcher/roles.h"

namespace aiacc::launcher {

namespace {

constexpr std::string_view kPlain =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    "_-+=./:,@%^";
constexpr std::string_view kPlainInEveryShell =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    "_-+./,@";

Words ssh_to(const HostPlan& host) {
  // No terminal, no X11, and no questions, because nobody could answer them.
  Words words = {"ssh", "-T", "-x", "-o", "BatchMode=yes"};
  if (!host.user.empty()) words.insert(words.end(), {"-l", host.user});
  if (host.port != 0) words.insert(words.end(), {"-p", std::to_string(host.port)});
  words.push_back(host.name);
  return words;
}

// A step of one task, which may use all that the job has on the node, beside other steps. What it writes is not kept
// back until a line is whole: the agent does not write lines. A shell says that there is no such program as it does
// behind ssh.
Words srun_to(const HostPlan& host) {
  return {"srun",
          "--overlap",
          "--nodes=1",
          "--ntasks=1",
          "--ntasks-per-node=1",
          "--nodelist=" + host.name,
          "--cpu-bind=none",
          "--mpi=none",
          "--export=ALL",
          "--unbuffered",
          "--quiet",
          "sh",
          "-c",
          "exec \"$@\"",
          "sh"};
}

Words launch_agent_to(const HostPlan& host, const std::string& command) {
  std::istringstream in(command);
  Words words(std::istream_iterator<std::string>(in), {});
  if (words.empty()) throw UsageError(MessageId::kValue, "--launch-agent names no command");
  if (host.port != 0) {
    throw UsageError(MessageId::kHosts,
                     fmt::format("port {} of host {} is for ssh, and --launch-agent is given: leave one "
                                 "of them out",
                                 host.port, host.name));
  }
  words.push_back(host.user.empty() ? host.name : fmt::format("{}@{}", host.user, host.name));
  return words;
}

}  // namespace

std::string remote_program(const std::string& executable) {
  std::string path = executable;
  if (const std::size_t libs = path.rfind("/.libs/"); libs != std::string::npos) {
    path.erase(libs, 6);
    const std::size_t name = path.rfind('/') + 1;
    if (path.compare(name, 3, "lt-") == 0) path.erase(name, 3);
  }
  const bool plain = path.starts_with('/') && path.find_first_not_of(kPlainInEveryShell) == std::string::npos;
  return plain ? path : std::string();
}

std::vector<Words> starter_commands(const HostPlan& host, const Options& options, const std::string& program) {
  const Words to = options.launch_agent.given() ? launch_agent_to(host, options.launch_agent.value)
                   : host.by_srun               ? srun_to(host)
                                                : ssh_to(host);
  std::vector<Words> commands;
  for (const std::string& called : {remote_program(program), std::string("aiaccrun")}) {
    if (called.empty()) continue;
    Words& words = commands.emplace_back(to);
    words.push_back(called);
    words.emplace_back(kRemoteKeeper);
    if (options.isolate.value) words.emplace_back(kIsolateWord);
  }
  return commands;
}

std::vector<std::string> starter_environment(const HostPlan& host, const Options& options,
                                             const std::vector<std::string>& ours) {
  if (!host.by_srun || options.launch_agent.given()) return ours;
  constexpr std::array<std::string_view, 5> kKept = {
      "SLURM_CONF=", "SLURM_JOB_ID=", "SLURM_JOBID=", "SLURM_CLUSTER_NAME=", "SLURM_WORKING_CLUSTER="};
  constexpr std::array<std::string_view, 3> kLeftOut = {"SLURM_", "SRUN_", "CUDA_VISIBLE_DEVICES="};
  std::vector<std::string> kept;
  for (const std::string& entry : ours) {
    const auto begins = [&entry](std::string_view name) { return entry.starts_with(name); };
    if (std::any_of(kKept.begin(), kKept.end(), begins) || std::none_of(kLeftOut.begin(), kLeftOut.end(), begins)) {
      kept.push_back(entry);
    }
  }
  return kept;
}

std::string quoted(const std::string& word) {
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string quoted(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + quoted(word);
  return text;
}

}  // namespace aiacc::launcher

// Host: the operations of launcher and agents on their machine: start processes, learn of their exit, signal them, read
// small files. Real: fork, pidfd, procfs (base/io/real_host.h). Simulated: coroutines that can be killed (base/sim).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/net.h"

namespace aiacc::io {

using ProcessId = std::int32_t;

// How a process ended: exited with `code`, or was killed by `signal` (then code is 0).
struct ExitStatus {
  int code = 0;
  int signal = 0;
  bool ok() const noexcept { return code == 0 && signal == 0; }
  int shell_code() const noexcept { return signal != 0 ? 128 + signal : code; }
  bool operator==(const ExitStatus&) const = default;
};

// Usable processing units by operating-system index.
using CpuList = std::vector<unsigned>;

struct SpawnSpec {
  enum class Stdio : std::uint8_t { kNull, kPipe, kInherit };
  enum class Group : std::uint8_t { kInherit, kNewGroup, kNewSession };

  std::vector<std::string> argv;  // argv[0] is looked up in the PATH of `env` if it has no slash
  std::string program;            // the file to execute if it is not argv[0]; not looked up in PATH
  std::vector<std::string> env;   // "NAME=value", the complete environment
  std::string cwd;                // empty: the parent's
  Stdio in = Stdio::kNull;
  Stdio out = Stdio::kInherit;
  Stdio err = Stdio::kInherit;
  Group group = Group::kNewGroup;
  bool die_with_parent = true;  // SIGKILL when the thread that spawned it ends
  bool channel = false;         // a socketpair; the child finds its end at descriptor 3
  CpuList binding;              // empty: inherit
};

class Process {
 public:
  virtual ~Process() = default;  // does not end the process
  virtual ProcessId id() const noexcept = 0;
  // The parent's ends of the requested streams; null otherwise. The caller may move them out.
  std::unique_ptr<Stream> in, out, err, channel;
  // errno if the kernel refused the requested binding; the process then runs unbound.
  int unbound = 0;

  // Any number of coroutines may wait; after the process has ended it returns at once.
  virtual Task<ExitStatus> wait(Stop& stop) = 0;
  virtual std::optional<ExitStatus> ended() const noexcept = 0;
  // Returns the signal that stopped it (state T), once for each stop; by SIGCHLD, without polling. Only one coroutine
  // may wait; it never returns after the process has ended.
  virtual Task<int> stopped(Stop& stop) = 0;
  // Signals the process, or its whole group. No effect after its end.
  virtual void signal(int number) noexcept = 0;
  virtual void signal_group(int number) noexcept = 0;
};

class Host {
 public:
  virtual ~Host() = default;
  virtual std::string name() const = 0;

  // Makes this process a subreaper: it becomes the parent of descendants whose own parent has ended, and reaps them.
  virtual void adopt_orphans() = 0;

  // Throws SpawnError with exec's errno if the program cannot be started: the child reports it before it becomes the
  // program, so a missing program is not confused with an exit code. The child has no signal blocked or ignored, no
  // descriptors but 0 to 2 and its channel, and the descriptor limit that this process was started with.
  virtual std::unique_ptr<Process> spawn(const SpawnSpec& spec) = 0;

  // Descendants of this process that have not ended (no zombies), reparented ones included after adopt_orphans().
  virtual std::vector<ProcessId> descendants() = 0;
  virtual void signal(ProcessId process, int number) noexcept = 0;
  // State letter of /proc/PID/stat ('R', 'S', 'D', 'T', 'Z' …); 0 if there is no such process.
  virtual char state(ProcessId process) = 0;

  // The content of a small file; nullopt if there is none.
  virtual std::optional<std::string> read_file(const std::string& path) = 0;
};

// A failure of exec(2) inside spawn: kSystem that keeps the errno, so that the launcher can distinguish 126 from 127.
class SpawnError : public Error {
 public:
  SpawnError(std::string message, int errno_value) : Error(Code::kSystem, std::move(message)), errno_(errno_value) {}
  int errno_value() const noexcept { return errno_; }

 private:
  int errno_;
};

}  // namespace aiacc::io

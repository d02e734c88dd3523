// SimMachine: one simulated machine with its processes. SimHost: what one process does to it, a Host like the real one.
//
// A program is a coroutine that is registered by name; a process is such a coroutine on a node of its own, with its
// streams, its environment and what it knows of signals. It dies as processes do: it returns, a signal ends it, or its
// parent dies and the kernel was told so. Orphans go to the nearest subreaper above.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/io/host.h"
#include "base/io/signals.h"
#include "base/sim/sim_loop.h"
#include "base/sim/sim_net.h"
#include "base/task/scope.h"

namespace aiacc::sim {

class SimMachine;

// What a program has in its hands. Lives as long as the machine.
class SimSelf {
 public:
  virtual ~SimSelf() = default;
  virtual io::ProcessId process() const noexcept = 0;
  virtual SimLoop& loop() noexcept = 0;
  virtual Stop& stop() noexcept = 0;  // requested only when the simulation is over
  virtual io::Host& host() noexcept = 0;
  virtual io::Net& net() noexcept = 0;
  virtual io::Signals& signals() noexcept = 0;  // from its first use on, signals that can be caught are caught
  virtual void ignore(int signal) noexcept = 0;
  virtual const std::vector<std::string>& argv() const noexcept = 0;
  virtual std::string env(const std::string& name) const = 0;  // empty if it is not set
  // Never null; what the spawner did not ask for is /dev/null. Inherited output is /dev/null too.
  std::unique_ptr<io::Stream> in, out, err;
  std::unique_ptr<io::Stream> channel;  // null if there is none
};

// Returns the exit code.
using SimProgram = std::function<Task<int>(SimSelf&)>;

class SimMachine final {
 public:
  // `number` is the machine's host in the network.
  SimMachine(World& world, SimNetwork& network, int number, std::string name);
  ~SimMachine();

  void install(const std::string& program, SimProgram main) { programs_[program] = std::move(main); }
  void write_file(const std::string& path, std::string content) { files_[path] = std::move(content); }

  // A process that nobody spawned, without a program of its own: a login, or a test. It adopts what has no parent.
  SimSelf& log_in(SimLoop& loop);

 private:
  class Record;
  class Handle;
  class ProcessHost;
  class Inbox;

  Record* find(io::ProcessId id) noexcept;
  Record& spawn(Record& parent, const io::SpawnSpec& spec);
  void end(Record& record, io::ExitStatus status) noexcept;
  void signal(Record& record, int number) noexcept;
  void signal_group(io::ProcessId group, int number) noexcept;
  bool descends(const Record& record, io::ProcessId ancestor) const noexcept;

  World& world_;
  SimNetwork& network_;
  int number_;
  std::string name_;
  io::ProcessId next_id_ = 1;
  std::map<std::string, SimProgram> programs_;
  std::map<std::string, std::string> files_;
  std::map<io::ProcessId, std::unique_ptr<Record>> processes_;  // ended ones too: their frames are still here
};

}  // namespace aiacc::sim

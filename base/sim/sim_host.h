// SimMachine: one simulated machine with its processes. SimHost: the Host of one process on it.
//
// A program is a coroutine that is registered by name; a process is such a coroutine on a node of its own, with its
// streams, environment and signal dispositions. It ends when it returns, when a signal kills it, or when its parent
// dies (die_with_parent). Orphans are adopted by the nearest subreaper above.
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

// The interface of a program to its process. It lives as long as the machine.
class SimSelf {
 public:
  virtual ~SimSelf() = default;
  virtual io::ProcessId process() const noexcept = 0;
  virtual SimLoop& loop() noexcept = 0;
  virtual Stop& stop() noexcept = 0;  // requested only at the end of the simulation
  virtual io::Host& host() noexcept = 0;
  virtual io::Net& net() noexcept = 0;
  virtual io::Signals& signals() noexcept = 0;  // after its first use, all catchable signals arrive here
  virtual void ignore(int signal) noexcept = 0;
  virtual const std::vector<std::string>& argv() const noexcept = 0;
  virtual std::string env(const std::string& name) const = 0;  // empty if it is not set
  // Never null; streams that the parent did not request are /dev/null, and so is inherited output.
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

  // Creates a process without parent and program: a login, or a test. It adopts orphans.
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
  std::map<io::ProcessId, std::unique_ptr<Record>> processes_;  // also ended ones, whose frames still exist
};

}  // namespace aiacc::sim

// Processes: what a process can know of others of its machine that are not its children: who they are, and when they end. The
// system itself tells of an end, at once, whatever the process was doing and whatever of its sockets its children still hold.
// Real: base/io/real_processes.h.
#pragma once

#include <memory>
#include <string>

#include "base/task/stop.h"
#include "base/task/task.h"

namespace aiacc::io {

class ProcessEnd {
 public:
  virtual ~ProcessEnd() = default;
  // Returns when the process has ended.
  virtual Task<void> wait(Stop& stop) = 0;
  // "process 4711", for sentences.
  virtual std::string describe() const = 0;
};

class Processes {
 public:
  virtual ~Processes() = default;
  // Names this process for others of this machine; the same name never means another process. Empty if the system does not
  // tell.
  virtual std::string mine() const = 0;
  // Of a process that has ended, too. Null where its end cannot be seen from here: it is this very process, or of other
  // namespaces, or too many are watched.
  virtual std::unique_ptr<ProcessEnd> watch(const std::string& name) = 0;
};

}  // namespace aiacc::io

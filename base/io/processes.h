// Processes: observes processes of the same machine that are not children: their identity and their end. The kernel
// reports an end at once, whatever the process was doing, and even if its children still hold its sockets. Real:
// base/io/real_processes.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/task/stop.h"
#include "base/task/task.h"

namespace aiacc::io {

class ProcessEnd {
 public:
  virtual ~ProcessEnd() = default;
  // Returns when the process has ended.
  virtual Task<void> wait(Stop& stop) = 0;
  // "process 4711", for messages.
  virtual std::string describe() const = 0;
};

class Processes {
 public:
  virtual ~Processes() = default;
  // A name of this process for others on this machine, which is never reused. Empty if the system does not provide one, or does
  // not tell of the ends of processes.
  virtual std::string own_name() const = 0;
  // Also for a process that has ended. Null if its end cannot be observed: it is this process itself, it is in other
  // namespaces, or too many are watched.
  virtual std::unique_ptr<ProcessEnd> watch(const std::string& name) = 0;
};

// Whether the processes with these names (Processes::own_name) are two that can watch each other: they are in the same namespaces,
// which a name says before its last two words.
inline bool see_each_other(std::string_view one, std::string_view other) noexcept {
  const auto namespaces = [](std::string_view name) {
    for (int word = 0; word < 2; ++word) name = name.substr(0, std::max(name.rfind(' ') + 1, std::size_t{1}) - 1);
    return name;
  };
  return one != other && !namespaces(one).empty() && namespaces(one) == namespaces(other);
}

}  // namespace aiacc::io

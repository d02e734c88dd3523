// first_hosts: waits until the script of --host-discovery-script lists enough slots for a job to begin.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "base/io/signals.h"
#include "launcher/head/host_discovery.h"
#include "launcher/head/job_result.h"

namespace aiacc::launcher {

struct FirstHostsSettings {
  int least = 1;                      // slots
  Duration limit{};                   // zero: none
  std::vector<std::string> unusable;  // names of hosts that do not count
  std::function<void(MessageId, const std::string&)> say;
};

// The hosts; or how the job ended: the time has passed, or the user ended it.
Task<std::variant<std::vector<HostPlan>, JobResult>> first_hosts(Loop& loop, io::Host& host, io::Signals& signals,
                                                                 const HostSource& source,
                                                                 const FirstHostsSettings& settings, Stop& stop);

}  // namespace aiacc::launcher

// HostSource: what the head of a job that gets hosts while it runs asks for: how hosts are found, how one is reached, and
// what its agent is to start.
#pragma once

#include <string>
#include <vector>

#include "base/io/host.h"
#include "base/wire/launch_messages.h"
#include "launcher/head/host_link.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/plan.h"

namespace aiacc::launcher {

class HostSource {
 public:
  virtual ~HostSource() = default;
  // The command that prints the hosts of the present, with pipes for both of its outputs.
  virtual io::SpawnSpec script() const = 0;
  // What it has printed, each machine once. Throws UsageError: what it printed is no list of hosts.
  virtual std::vector<HostPlan> hosts_of(const std::string& printed) const = 0;
  virtual HostLink::Settings link_to(const HostPlan& host, int index) const = 0;
  // Of the host with that index, without ranks and without what only the head knows.
  virtual wire::StartJob job_on(const HostPlan& host, int index) const = 0;
  virtual std::vector<std::string> environment_of(const RankPlan& rank, const JobSize& job) const = 0;
};

}  // namespace aiacc::launcher

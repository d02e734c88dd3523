// From a plan to what the head gets: how each host is reached, what its agent is to start, and the options of the head's own. Also
// for hosts that the job gets while it runs.
#pragma once

#include "base/config.h"
#include "launcher/head/head.h"
#include "launcher/head/host_source.h"
#include "launcher/plan/plan.h"

namespace aiacc::launcher {

// aiaccrun itself uses only two of the library's variables, which must be valid. Throws UsageError.
Config own_config(const Surroundings& here);

Head::Settings settings_of(const Plan& plan, const Options& options, const Surroundings& here);

// The hosts that the script of --host-discovery-script prints. `plan` has the program and its environment; its hosts and ranks are
// not read. What it is given must outlive it.
class FoundHosts final : public HostSource {
 public:
  FoundHosts(const Plan& plan, const Options& options, const Surroundings& here);

  io::SpawnSpec script() const override;
  std::vector<HostPlan> hosts_of(const std::string& printed) const override;
  HostLink::Settings link_to(const HostPlan& host, int index) const override;
  wire::StartJob job_on(const HostPlan& host, int index) const override;
  std::vector<std::string> environment_of(const RankPlan& rank, const JobSize& job) const override;

 private:
  const Plan& plan_;
  const Options& options_;
  const Surroundings& here_;
  Duration lease_;
};

}  // namespace aiacc::launcher

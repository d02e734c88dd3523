// HostDiscovery: runs the script of --host-discovery-script again and again. A script that fails, prints no list of hosts or
// does not end is reported once, until it works again or fails in another way.
#pragma once

#include <string>
#include <vector>

#include "base/io/host.h"
#include "base/task/scope.h"
#include "launcher/head/host_source.h"

namespace aiacc::launcher {

class HostDiscovery {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(1);  // from the end of one run to the next
  static constexpr Duration kLimit = std::chrono::seconds(10);    // of one run

  class Owner {
   public:
    // After each run that went well.
    virtual void hosts_listed(const std::vector<HostPlan>& hosts) = 0;
    virtual void discovery_failed(const std::string& sentence) = 0;
    // After each run.
    virtual void discovery_tick() = 0;

   protected:
    ~Owner() = default;
  };

  HostDiscovery(Loop& loop, io::Host& host, const HostSource& source, Owner& owner);
  HostDiscovery(const HostDiscovery&) = delete;
  HostDiscovery& operator=(const HostDiscovery&) = delete;

  // Until stopped; nothing of the script runs then.
  Task<void> run(Stop& stop);

 private:
  struct Output {
    std::string text;
    bool too_long = false;
  };
  Task<std::string> ask(Stop& stop);
  static Task<void> read(io::Stream* from, Output* output, Stop& stop);

  Loop& loop_;
  io::Host& host_;
  const HostSource& source_;
  Owner& owner_;
  std::string reported_;  // the failure that the owner knows
};

}  // namespace aiacc::launcher

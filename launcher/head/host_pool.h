// HostPool: the hosts that a job may use, which change while it runs, and where its next ranks go. Host after host is filled,
// in the order of the list. A host on which ranks fail, or that cannot be reached, gets none for a while, which is twice as
// long each time. Pure: no I/O, and the caller knows the time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "launcher/cli/options.h"
#include "launcher/plan/plan.h"

namespace aiacc::launcher {

class HostPool {
 public:
  // Ranks that are missing: how many, and on which places of a host (0 to its slots - 1).
  struct Request {
    HostPlan host;
    std::vector<int> places;
  };

  HostPool(int most_ranks, CooldownRange cooldown) : most_ranks_(most_ranks), cooldown_(cooldown) {}

  // The list of the present. A host that is not in it keeps its ranks and gets no new ones.
  void list(const std::vector<HostPlan>& hosts);
  void take(const std::string& host, int place);
  void free(const std::string& host, int place);
  void set_aside(const std::string& host, Instant now);

  std::vector<Request> wanted(Instant now) const;
  bool listed(const std::string& host) const;
  // Until when it gets no ranks; in the past if it may have some.
  Instant aside_until(const std::string& host) const;
  int taken() const noexcept;

 private:
  struct State {
    std::set<int> taken;
    Duration cooldown{};  // the last one
    Instant aside_until{};
  };
  int most_ranks_;
  CooldownRange cooldown_;
  std::vector<HostPlan> listed_;
  std::map<std::string, State> states_;
};

}  // namespace aiacc::launcher

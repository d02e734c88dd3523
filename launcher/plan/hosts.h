// Decides which hosts a job gets and how many ranks each has, from lists, slots, -np, -N and --map-by; detects
// contradictions.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/plan.h"

namespace aiacc::launcher {

// This host under one of its names: localhost, 127.0.0.1, ::1, its own name, or that name's first label.
bool is_this_host(const std::string& name, const std::string& host_name);

// The hosts of a list, each name of a host and each machine once, with their slots, and limited by -N. No ranks yet.
std::vector<HostPlan> listed_hosts(const std::vector<HostSpec>& list, const Options& options, const Surroundings& here);

// The hosts that get ranks, each with its ranks. Throws UsageError: more ranks than slots, no number of ranks, a host
// given twice with different users or ports.
std::vector<HostPlan> plan_hosts(const Options& options, const Surroundings& here);

}  // namespace aiacc::launcher

// Shared by the tests of a plan and its parts: makes a plan from a command line and fixed Surroundings.
#pragma once

#include <gtest/gtest.h>

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/plan/environment.h"
#include "launcher/plan/placement.h"
#include "launcher/plan/plan.h"

namespace aiacc::launcher::test {

using Words = std::vector<std::string>;

inline Surroundings surroundings() {
  return {
      "c01.cluster", "/home/ann", {"PATH=/bin", "HOME=/home/ann", "FOO_A=1", "FOO_B=2", "FOOD=3"}, "/usr/bin/aiaccrun"};
}

inline Topology machine(const std::string& shape = "package:2 numa:1 core:4 pu:2") {
  return Topology::synthetic(shape);
}

inline Options options(const std::string& line) {
  std::istringstream in(line);
  return parse_options(Words(std::istream_iterator<std::string>(in), {}));
}

inline Plan plan(const std::string& line, const Surroundings& here = surroundings()) {
  return make_plan(options(line), here);
}

// The placement on the plan's first host.
inline Placement place(const Plan& plan, const Topology& topology = machine()) {
  return place_ranks(static_cast<int>(plan.hosts[0].ranks.size()), plan.placement, topology, plan.hosts[0].name);
}

inline Environment of_rank(const Plan& plan, int rank) {
  const RankPlan& own = plan.ranks[static_cast<std::size_t>(rank)];
  const bool local = plan.hosts[static_cast<std::size_t>(own.host)].local;
  const Environment common(local ? plan.environment : plan.remote_environment);
  const int threads = place(plan).binding.threads.at(static_cast<std::size_t>(own.local_rank));
  const Words entries = rank_environment(common, own.environment, {"local:agent-1", "10.0.0.1", 29400}, threads);
  Environment unique(entries);
  EXPECT_EQ(unique.entries().size(), entries.size()) << "a name stands twice";
  return unique;
}

inline UsageError refusal(const std::string& line, const Surroundings& here = surroundings()) {
  try {
    plan(line, here);
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message().find('\n'), std::string::npos);
    return error;
  }
  ADD_FAILURE() << "accepted: " << line;
  return {MessageId::kInternal, ""};
}

inline void expect_says(const std::string& text, const Words& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

}  // namespace aiacc::launcher::test

// The transports that ranks of this host can use; each is actually tried.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/cgroups.h"
#include "base/json.h"
#include "runtime/info/finding.h"

namespace aiacc::info {

struct Way {
  std::string name;
  bool available = false;
  std::string why;   // what was tried, or what refused it
  std::string cure;  // if it is not available
};

// Local; creates a page of shared memory, a child process for one system call, and a socket that nobody can reach.
// `ucx`, `ofi`: settings of UCX, "UCX_TLS=tcp", and of libfabric. Loads both into this process if they are there.
std::vector<Way> try_ways(const ReadFile& read_file, std::span<const std::string> ucx = {},
                          std::span<const std::string> ofi = {});

Json to_json(const std::vector<Way>& ways);
Findings judge(const std::vector<Way>& ways);

}  // namespace aiacc::info

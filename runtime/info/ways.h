// Which ways data can take from and to the ranks of this host, tried for real.
#pragma once

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

// Local; makes a page of shared memory, a child process that lives for one system call, and a socket that nobody reaches.
std::vector<Way> try_ways(const ReadFile& read_file);

Json to_json(const std::vector<Way>& ways);
Findings judge(const std::vector<Way>& ways);

}  // namespace aiacc::info

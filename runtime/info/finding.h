// Finding: a problem of this host that will affect a job, with one remedy.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace aiacc::info {

struct Finding {
  enum class Level { kHurts, kNote };  // a note is informative and needs no action
  Level level = Level::kHurts;
  std::string about;  // one word or two: "memlock", "reading through the kernel"
  std::string sentence;
  std::string cure;
};
using Findings = std::vector<Finding>;

Json to_json(const Findings& findings);

}  // namespace aiacc::info

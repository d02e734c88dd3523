// What the report about this host finds that will hurt a job, each with one cure.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace aiacc::info {

struct Finding {
  enum class Level { kHurts, kNote };  // a note is worth knowing and needs no cure today
  Level level = Level::kHurts;
  std::string about;  // one word or two: "memlock", "reading through the kernel"
  std::string sentence;
  std::string cure;
};
using Findings = std::vector<Finding>;

Json to_json(const Findings& findings);

}  // namespace aiacc::info

#include "groupcomm/gradient/dissemination.h"

#include <cstdint>

#include "base/error.h"

namespace aiacc::gradient {

std::vector<DisseminationStep> dissemination_plan(int member, int members, int radix) {
  AIACC_INVARIANT(members > 0 && member >= 0 && member < members && radix >= 2, "a member of a set, and a radix");
  std::vector<DisseminationStep> steps;
  for (std::int64_t unit = 1; unit < members; unit *= radix) {
    DisseminationStep& step = steps.emplace_back();
    for (std::int64_t distance = unit; distance < members && distance < unit * radix; distance += unit) {
      step.to.push_back(static_cast<int>((member + distance) % members));
      step.from.push_back(static_cast<int>((member + members - distance) % members));
    }
  }
  return steps;
}

}  // namespace aiacc::gradient

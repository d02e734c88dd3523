// Placements of ranks on hosts for tests of contexts in virtual time. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace aiacc::hosts_sim_test {

using Placement = std::vector<std::uint32_t>;

inline std::string text(const Placement& placement) {
  std::string text;
  for (const std::uint32_t host : placement) text += static_cast<char>('a' + host);
  return text;
}

inline const Placement kPlacements[] = {{0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1, 2}, {0, 0, 0, 0, 1, 2, 2}};

class OnHosts : public testing::TestWithParam<Placement> {
 protected:
  int size() const { return static_cast<int>(GetParam().size()); }
};

}  // namespace aiacc::hosts_sim_test

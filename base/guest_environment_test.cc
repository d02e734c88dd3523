#include "base/guest_environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace aiacc {
namespace {

std::string value(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "(none)" : text;
}

TEST(GuestEnvironment, AGuestSeesItsOwnSettingsAndTheUserTheOthers) {
  setenv("GUEST_A", "user's", 1);
  setenv("OTHER", "stays", 1);
  setenv("HIDDEN", "user's", 1);
  {
    const std::vector<std::string> settings = {"GUEST_B=1", "GUEST_B=2", "HIDDEN"};
    const GuestEnvironment guest("GUEST_", settings);
    EXPECT_EQ(value("GUEST_A"), "(none)");
    EXPECT_EQ(value("GUEST_B"), "2");
    EXPECT_EQ(value("HIDDEN"), "(none)");
    EXPECT_EQ(value("OTHER"), "stays");
  }
  EXPECT_EQ(value("GUEST_A"), "user's");
  EXPECT_EQ(value("GUEST_B"), "(none)");
  EXPECT_EQ(value("HIDDEN"), "user's");
  for (const char* name : {"GUEST_A", "OTHER", "HIDDEN"}) unsetenv(name);
}

}  // namespace
}  // namespace aiacc

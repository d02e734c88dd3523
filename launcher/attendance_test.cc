#include "launcher/attendance.h"

#include <gtest/gtest.h>

namespace aiacc::launcher {
namespace {

TEST(Attendance, NamesWhoCameAndWhoDidNot) {
  EXPECT_EQ(attendance_text({{"a", {0, 1}, {}}, {"b", {2}, {3, 4}}}),
            "3 of 5 ranks called aiacc_init: 0-1 on host a, 2 on host b; 3-4 on host b did not");
  EXPECT_EQ(attendance_text({{"a", {0, 2, 3, 4, 7}, {1, 5, 6}}}),
            "5 of 8 ranks called aiacc_init: 0, 2-4, 7 on host a; 1, 5-6 on host a did not");
  EXPECT_EQ(attendance_text({{"a", {}, {0}}}), "0 of 1 ranks called aiacc_init: none; 0 on host a did not");
}

TEST(Attendance, NobodyIsMissing) { EXPECT_EQ(attendance_text({{"a", {0, 1}, {}}, {"b", {2}, {}}}), ""); }

TEST(Attendance, ManyHostsAreCounted) {
  std::vector<HostAttendance> hosts;
  for (int host = 0; host < 20; ++host) hosts.push_back({"n" + std::to_string(host), {2 * host}, {2 * host + 1}});
  const std::string text = attendance_text(hosts);
  EXPECT_NE(text.find("14 on host n7 and 12 on other hosts; 1 on host n0"), std::string::npos) << text;
}

}  // namespace
}  // namespace aiacc::launcher

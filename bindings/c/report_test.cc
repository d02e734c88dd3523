// aiacc_info through the exported symbol: the contract of snprintf, and that the text is JSON with all parts.
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/json.h"
#include "include/aiacc/aiacc.h"
#include "tests/variable.h"

namespace {

std::string whole() {
  std::vector<char> text(1);
  std::size_t needed = 0;
  do {
    text.resize(needed + 256);
    EXPECT_EQ(aiacc_info(text.data(), text.size(), &needed), AIACC_OK) << aiacc_last_error();
  } while (needed > text.size());
  EXPECT_EQ(std::strlen(text.data()) + 1, needed);
  return text.data();
}

TEST(Info, IsAsSnprintf) {
  std::size_t needed = 0;
  EXPECT_EQ(aiacc_info(nullptr, 0, &needed), AIACC_OK);
  EXPECT_GT(needed, 100u);
  char few[8] = {'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x'};
  EXPECT_EQ(aiacc_info(few, 5, nullptr), AIACC_OK);
  EXPECT_STREQ(few, "{\"ve");
  EXPECT_EQ(few[5], 'x') << "written past the end";
  EXPECT_EQ(aiacc_info(few, 1, nullptr), AIACC_OK);
  EXPECT_STREQ(few, "");
  EXPECT_EQ(aiacc_info(nullptr, 5, nullptr), AIACC_ERR_INVALID_ARGUMENT);
}

TEST(Info, HasAllParts) {
  const aiacc::Json report = aiacc::Json::parse(whole());
  EXPECT_EQ(report["version"].as_string(), aiacc_version());
  EXPECT_FALSE(report["features"]["libsodium"].as_string().empty());
  EXPECT_FALSE(report["features"]["cuda"].as_bool());
  EXPECT_EQ(report["transports"].items().size(), 5u);
  EXPECT_TRUE(report["transports"].items()[0]["available"].as_bool()) << "shared memory";
  EXPECT_GT(report["settings"].items().size(), 10u);
  EXPECT_TRUE(report["recent_operations"].items().empty()) << "this process is no rank";
  EXPECT_GT(report["limits"].items().size(), 5u);
  bool loopback = false;
  for (const aiacc::Json& device : report["network"].items()) {
    EXPECT_FALSE(device["why"].as_string().empty()) << device.text();
    loopback |= device["name"].as_string() == "lo" && !device["chosen"].as_bool();
  }
  EXPECT_TRUE(loopback);
}

TEST(Info, TopologyIsThatOfTheMask) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  const aiacc::Json topology = aiacc::Json::parse(whole())["topology"];
  EXPECT_TRUE(topology["missing"].is_null()) << topology["missing"].as_string();
  EXPECT_EQ(topology["unit_count"].as_integer(), CPU_COUNT(&mask));
}

TEST(Info, SettingsSayWhereTheyComeFromAndBadOnesAreFound) {
  const aiacc::test::Variable timeout("AIACC_TIMEOUT", "7m"), lease("AIACC_LEASE", "1 parsec"),
      unknown("AIACC_SPINN", "1us");
  const aiacc::Json report = aiacc::Json::parse(whole());
  int seen = 0;
  for (const aiacc::Json& row : report["settings"].items()) {
    const std::string name = row["name"].as_string();
    const std::string value = row["value"].as_string() + " " + row["origin"].as_string();
    seen += name == "AIACC_TIMEOUT" && value == "7m environment" ? 1 : 0;
    seen += name == "AIACC_LEASE" && value == "30s default" ? 1 : 0;
  }
  EXPECT_EQ(seen, 2);
  std::string found;
  for (const aiacc::Json& finding : report["findings"].items()) {
    found += finding["about"].as_string() + ": " + finding["finding"].as_string() + "\n";
    EXPECT_FALSE(finding["cure"].as_string().empty());
  }
  EXPECT_NE(found.find("AIACC_LEASE: AIACC_LEASE='1 parsec' is not possible"), std::string::npos) << found;
  EXPECT_NE(found.find("AIACC_SPINN: "), std::string::npos) << found;
}

}  // namespace

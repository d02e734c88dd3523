#include "base/config_aliases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/config.h"
#include "base/error.h"

namespace aiacc {
namespace {

using Strings = std::vector<std::string>;
using std::chrono::hours;
using std::chrono::seconds;

const ConfigRow* row_of(std::string_view setting) {
  const auto rows = config_table();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const ConfigRow& row) { return row.name == setting; });
  return found == rows.end() ? nullptr : &*found;
}

TEST(ConfigAliases, EveryRowIsComplete) {
  std::set<std::string_view> names;
  for (const ConfigAlias& alias : config_aliases()) {
    SCOPED_TRACE(alias.name);
    EXPECT_TRUE(names.insert(alias.name).second) << "twice";
    EXPECT_TRUE(alias.name.starts_with("HOROVOD_") || alias.name.starts_with("PERSEUS_"));
    EXPECT_EQ(alias.setting.empty(), alias.translate == nullptr);
    EXPECT_EQ(alias.setting.empty(), alias.example.empty());
    EXPECT_TRUE(alias.help.empty() ? !alias.setting.empty() : alias.help.ends_with('.'));
    if (alias.setting.empty()) continue;
    const auto text = alias.translate(alias.example);
    ASSERT_TRUE(text && !text->empty());
    // The setting accepts what its alias becomes.
    if (row_of(alias.setting) != nullptr) {
      EXPECT_NO_THROW(Config::read(Strings{}, {{std::string(alias.setting), *text}})) << *text;
    }
    EXPECT_EQ(Config::read(Strings{std::string(alias.name) + "="}).without_effect(), Strings{}) << "empty is unset";
  }
}

TEST(ConfigAliases, SetTheSettingTheyMean) {
  const Config config = Config::read(Strings{"HOROVOD_FUSION_THRESHOLD=1048576", "PERSEUS_ALLREDUCE_STREAMS=6",
                                             "HOROVOD_STALL_CHECK_TIME_SECONDS=90", "HOROVOD_START_TIMEOUT=45",
                                             "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=0", "HOROVOD_LOG_LEVEL=WARNING",
                                             "HOROVOD_LOG_LEVELS=x", "HOROVOD_RANK=1"});
  EXPECT_EQ(config->fusion_bytes, 1u << 20);
  EXPECT_EQ(config->fusion_streams, 6);
  EXPECT_EQ(config->late_after, seconds(90));
  EXPECT_EQ(config->init_timeout, seconds(45));
  EXPECT_EQ(config->timeout, hours(24 * 30)) << "0 is never";
  EXPECT_EQ(config->log, LogLevels(LogLevel::kWarn));
  EXPECT_EQ(config.origin("AIACC_FUSION_BYTES"), Config::Origin::kAlias);
  EXPECT_EQ(config.without_effect(), Strings{});
  EXPECT_EQ(config.without_effect_sentence(), "");
}

TEST(ConfigAliases, OurOwnVariableAndTheProgramWin) {
  const Strings both{"HOROVOD_FUSION_THRESHOLD=1048576", "AIACC_FUSION_BYTES=4M"};
  EXPECT_EQ(Config::read(both)->fusion_bytes, 4u << 20);
  EXPECT_EQ(Config::read(both).without_effect(), Strings{});
  EXPECT_EQ(Config::read(Strings{both[0]}, {{"AIACC_FUSION_BYTES", "2M"}})->fusion_bytes, 2u << 20);
}

TEST(ConfigAliases, AStallCheckThatIsOffIsNeverLate) {
  const Strings off{"HOROVOD_STALL_CHECK_DISABLE=1", "HOROVOD_STALL_CHECK_TIME_SECONDS=60"};
  EXPECT_EQ(Config::read(off)->late_after, hours(24 * 30));
  const Strings on{"HOROVOD_STALL_CHECK_DISABLE=0", "HOROVOD_STALL_CHECK_TIME_SECONDS=61"};
  EXPECT_EQ(Config::read(on)->late_after, seconds(61));
  EXPECT_EQ(Config::read(on).without_effect(), Strings{});
}

TEST(ConfigAliases, WhatHasNoEffectIsToldInOneSentence) {
  EXPECT_EQ(
      Config::read(Strings{"HOROVOD_CYCLE_TIME=0.5"}).without_effect_sentence(),
      "HOROVOD_CYCLE_TIME has no effect on aiacc with the value that is set; aiacc-env(7) says why and what does");
  const Config config = Config::read(Strings{"PERSEUS_ALLREDUCE_MODE=1", "HOROVOD_FUSION_THRESHOLD=0",
                                             "HOROVOD_CYCLE_TIME=5", "HOROVOD_LOG_LEVEL=loud"});
  EXPECT_EQ(config.without_effect(),
            (Strings{"HOROVOD_FUSION_THRESHOLD", "HOROVOD_LOG_LEVEL", "HOROVOD_CYCLE_TIME", "PERSEUS_ALLREDUCE_MODE"}));
  EXPECT_EQ(config->fusion_bytes, Config::read(Strings{})->fusion_bytes);
  EXPECT_TRUE(config.without_effect_sentence().starts_with(
      "HOROVOD_FUSION_THRESHOLD, HOROVOD_LOG_LEVEL, HOROVOD_CYCLE_TIME, PERSEUS_ALLREDUCE_MODE have no effect"));
  EXPECT_TRUE(config.warnings().empty());
}

TEST(ConfigAliases, WhatTheyMeantBefore) {
  struct Case {
    std::string_view name, value, text;
  };
  for (const Case& one :
       {Case{"PERSEUS_ALLREDUCE_DTYPE", "0", "fp16"}, Case{"PERSEUS_ALLREDUCE_DTYPE", "1", "fp32"},
        Case{"PERSEUS_ALLREDUCE_DTYPE", "2", "mixed"}, Case{"PERSEUS_ALLREDUCE_NANCHECK", "0", "no"},
        Case{"PERSEUS_ALLREDUCE_NANCHECK", "1", "yes"}, Case{"HOROVOD_LOG_LEVEL", "Fatal", "error"},
        Case{"PERSEUS_ALLREDUCE_DTYPE", "3", "none"}, Case{"PERSEUS_ALLREDUCE_STREAMS", "0", "none"},
        Case{"HOROVOD_STALL_CHECK_TIME_SECONDS", "-1", "none"}, Case{"HOROVOD_TIMELINE", "DYNAMIC", ""}}) {
    const auto rows = config_aliases();
    const auto alias = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.name == one.name; });
    ASSERT_NE(alias, rows.end());
    EXPECT_EQ(alias->translate(one.value).value_or("none"), one.text) << one.name << "=" << one.value;
  }
}

// The list of the page equals the table's, item by item.
TEST(ConfigAliases, TheManualListsTheTable) {
  const char* source = std::getenv("AIACC_SOURCE");  // NOLINT(concurrency-mt-unsafe)
  if (source == nullptr) GTEST_SKIP() << "AIACC_SOURCE does not say where the sources are";
  std::stringstream text;
  text << std::ifstream(std::filesystem::path(source) / "man/aiacc-env.7").rdbuf();
  EXPECT_NE(text.str().find(config_aliases_mdoc()), std::string::npos) << "man/aiacc-env.7 does not hold this list:\n"
                                                                       << config_aliases_mdoc();
}

}  // namespace
}  // namespace aiacc

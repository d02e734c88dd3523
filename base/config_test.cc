#include "base/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/quantity.h"
#include "tests/variable.h"

namespace aiacc {
namespace {

using Strings = std::vector<std::string>;
using std::chrono::seconds;

std::string refusal_of(const Strings& environment) {
  try {
    Config::read(environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.message();
  }
  return "it was taken";
}

TEST(Config, DefaultsAreThoseOfTheTable) {
  const Config config = Config::read(Strings{});
  EXPECT_EQ(config->init_timeout, seconds(300));
  EXPECT_EQ(config->timeout, seconds(1800));
  EXPECT_EQ(config->lease, seconds(30));
  EXPECT_EQ(config->path_timeout, seconds(120));
  EXPECT_EQ(config->failback, seconds(5));
  EXPECT_EQ(config->late_after, seconds(60));
  EXPECT_EQ(config->rank, std::nullopt);
  EXPECT_EQ(config->agent, "");
  EXPECT_FALSE(config->singleton);
  EXPECT_EQ(config->log, LogLevels(LogLevel::kWarn));
  EXPECT_EQ(config.origin("AIACC_TIMEOUT"), Config::Origin::kDefault);
  EXPECT_TRUE(config.warnings().empty());
}

TEST(Config, UcxGetsEverySettingOfItsOwnPrefixAndNoWarningIsGiven) {
  const Config config =
      Config::read(Strings{"AIACC_UCX_TLS=tcp", "AIACC_UCX_LOG_LEVEL=info", "UCX_TLS=rc", "AIACC_TRANSPORT=ucx"});
  EXPECT_EQ(config.ucx_settings(), (Strings{"UCX_LOG_LEVEL=info", "UCX_TLS=tcp"}));
  EXPECT_EQ(config->network, Network::kUcx);
  EXPECT_TRUE(config.warnings().empty());
  EXPECT_EQ(refusal_of({"AIACC_TRANSPORT=rdma"}), "AIACC_TRANSPORT='rdma' is not possible: give auto, tcp, ucx or ofi");
}

TEST(Config, LibfabricGetsTheProviderAndEverySettingOfItsPrefixAndNoWarningIsGiven) {
  const Config config = Config::read(
      Strings{"AIACC_OFI_PROVIDER=tcp;ofi_rxm", "AIACC_FI_TCP_IFACE=eth0", "FI_PROVIDER=shm", "AIACC_TRANSPORT=ofi"});
  EXPECT_EQ(config.ofi_settings(), (Strings{"FI_TCP_IFACE=eth0", "OFI_PROVIDER=tcp;ofi_rxm"}));
  EXPECT_EQ(config->network, Network::kOfi);
  EXPECT_TRUE(config.warnings().empty());
}

TEST(Config, EveryRowIsComplete) {
  std::set<std::string_view> names;
  const Config config = Config::read(Strings{});
  for (const ConfigRow& row : config_table()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(names.insert(row.name).second) << "twice";
    EXPECT_TRUE(row.name.starts_with("AIACC_"));
    EXPECT_TRUE(row.help.ends_with('.'));
    EXPECT_FALSE(row.since.empty());
    EXPECT_EQ(row.lowest.empty(), row.highest.empty());
    // Each row accepts its own default, bounds and present value.
    for (const std::string& text :
         {std::string(row.standard), std::string(row.lowest), std::string(row.highest), config.text(row)}) {
      EXPECT_NO_THROW(Config::read(Strings{std::string(row.name) + "=" + text})) << text;
    }
  }
}

TEST(Config, ValuesComeFromTheEnvironmentAndTheProgramWins) {
  const Config config =
      Config::read(Strings{"HOME=/root", "AIACC_RANK=3", "AIACC_TIMEOUT=90", "AIACC_SLICE_BYTES=1M",
                           "AIACC_SINGLETON=1", "AIACC_AGENT=local:a=b", "AIACC_LOG=info,net=debug", "AIACC_LEASE="},
                   {{"AIACC_TIMEOUT", "1.5m"}});
  EXPECT_EQ(config->rank, 3);
  EXPECT_EQ(config->timeout, seconds(90));
  EXPECT_EQ(config->slice_bytes, 1u << 20);
  EXPECT_TRUE(config->singleton);
  EXPECT_EQ(config->agent, "local:a=b");
  EXPECT_EQ(config->log.of(LogPart::kNet), LogLevel::kDebug);
  EXPECT_EQ(config->log.of(LogPart::kCore), LogLevel::kInfo);
  EXPECT_EQ(config->lease, seconds(30)) << "an empty value is none";
  EXPECT_EQ(config.origin("AIACC_RANK"), Config::Origin::kEnvironment);
  EXPECT_EQ(config.origin("AIACC_TIMEOUT"), Config::Origin::kExplicit);
  EXPECT_EQ(config.origin("AIACC_LEASE"), Config::Origin::kDefault);
}

TEST(Config, ABadValueIsRefusedWithNameValueAndRange) {
  EXPECT_EQ(refusal_of({"AIACC_RANK=x"}), "AIACC_RANK='x' is not possible: give a whole number from 0 to 2147483646");
  EXPECT_EQ(refusal_of({"AIACC_RANK=-1"}), "AIACC_RANK='-1' is not possible: give a whole number from 0 to 2147483646");
  EXPECT_EQ(refusal_of({"AIACC_LEASE=2h"}),
            "AIACC_LEASE='2h' is not possible: give a time such as 30 (seconds), 1.5m or 200ms, from 1s to 1h");
  EXPECT_EQ(refusal_of({"AIACC_SLICE_BYTES=12"}),
            "AIACC_SLICE_BYTES='12' is not possible: give a size such as 4096, 64K or 1G, from 1M to 1T");
  EXPECT_EQ(refusal_of({"AIACC_SINGLETON=maybe"}), "AIACC_SINGLETON='maybe' is not possible: give yes or no");
  EXPECT_EQ(refusal_of({"AIACC_LOG=net=loud"}),
            "AIACC_LOG='net=loud' is not possible: 'loud' is no level of log messages: there are trace, "
            "debug, info, warn, error, off");
}

TEST(Config, AnUnknownVariableIsWarnedAboutWithTheNearest) {
  const Config config = Config::read(Strings{"AIACC_TIMOUT=3", "NOT_AIACC_RANK=1"});
  ASSERT_EQ(config.warnings().size(), 1u);
  EXPECT_EQ(config.warnings()[0],
            "the environment variable AIACC_TIMOUT is unknown to this version of aiacc; did you mean AIACC_TIMEOUT? "
            "aiacc-env(7) has them all");
  EXPECT_THROW(Config::read(Strings{}, {{"AIACC_TIMOUT", "3"}}), Error) << "a program that asks for it is wrong";
}

TEST(Config, TheProcessEnvironmentIsReadWhole) {
  const test::Variable word("AIACC_TEST_WORD", "a=b c");
  const Strings environment = process_environment();
  EXPECT_EQ(std::count(environment.begin(), environment.end(), "AIACC_TEST_WORD=a=b c"), 1);
}

TEST(Quantity, TimesAndSizesComeBack) {
  for (const char* text : {"0s", "1ns", "999us", "1500ms", "59s", "1m", "25h", "2d"})
    EXPECT_EQ(text_of(*parse_duration(text)), text);
  for (const char* text : {"0", "1", "4097", "64K", "1M", "3G", "2T"})
    EXPECT_EQ(text_of_bytes(*parse_bytes(text)), text);
  EXPECT_EQ(parse_duration("0.5"), Duration(500'000'000));
  EXPECT_EQ(parse_duration("1.5m"), seconds(90));
  for (const char* text : {"1.5G", "1536M", "1.5GiB", "1.5GB", "1610612736", "1610612736B"}) {
    EXPECT_EQ(parse_bytes(text), 1610612736u) << text;
  }
}

TEST(Quantity, WhatIsNoneIsNone) {
  for (const char* text :
       {"", "s", ".", "1.2.3", "-1", "+1", " 1", "1 ", "1w", "1e3", "99999999999999999999", "300000000000s", "nan"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
  for (const char* text : {"", "K", "1X", "-1", "1KK", "1KiBB", "99999999999T", "1e3"})
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  for (const char* text : {"", "1.0", "0x1", "9223372036854775808", "1 "})
    EXPECT_EQ(parse_integer(text), std::nullopt) << text;
}

TEST(LogLevels, TextComesBack) {
  for (const char* text : {"warn", "off", "info,net=debug", "error,core=trace,collective=off"}) {
    EXPECT_EQ(LogLevels::parse(text).text(), text);
  }
  EXPECT_EQ(LogLevels::parse("net=debug").of(LogPart::kMemory), LogLevel::kWarn);
  for (const char* text : {"", "loud", "net", "net=", "=warn", "warn,", "net=debug=warn"}) {
    EXPECT_THROW(LogLevels::parse(text), Error) << text;
  }
}

// The list of the page equals the table's, item by item.
TEST(Config, TheManualListsTheTable) {
  const char* source = std::getenv("AIACC_SOURCE");  // NOLINT(concurrency-mt-unsafe)
  if (source == nullptr) GTEST_SKIP() << "AIACC_SOURCE does not say where the sources are";
  const std::filesystem::path page = std::filesystem::path(source) / "man/aiacc-env.7";
  if (!std::filesystem::exists(page)) GTEST_SKIP() << "there is no aiacc-env(7) yet";
  std::stringstream text;
  text << std::ifstream(page).rdbuf();
  EXPECT_NE(text.str().find(config_mdoc()), std::string::npos) << "man/aiacc-env.7 does not hold this list:\n"
                                                               << config_mdoc();
}

}  // namespace
}  // namespace aiacc

// Compares aiaccrun(1) with the tables of the source: options, message ids, exit codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "launcher/cli/failure.h"
#include "launcher/cli/mpirun_table.h"
#include "launcher/cli/options_table.h"

namespace aiacc::launcher {
namespace {

using Lines = std::vector<std::string>;

class Manual : public testing::Test {
 protected:
  void SetUp() override {
    const char* source = std::getenv("AIACC_SOURCE");  // NOLINT(concurrency-mt-unsafe)
    if (source == nullptr) GTEST_SKIP() << "AIACC_SOURCE does not say where the sources are";
    std::ifstream in(std::filesystem::path(source) / "man/aiaccrun.1");
    ASSERT_TRUE(in) << "man/aiaccrun.1 is missing in " << source;
    for (std::string line; std::getline(in, line);) page_.push_back(line);
  }

  Lines section(const std::string& name) const {
    Lines out;
    bool inside = false;
    for (const std::string& line : page_) {
      if (line.starts_with(".Sh ")) inside = line == ".Sh " + name;
      if (inside) out.push_back(line);
    }
    EXPECT_FALSE(out.empty()) << name;
    return out;
  }

  // The texts that follow ".It " in a section; only up to its first sub-section if `first_part`.
  static Lines items(const Lines& section, bool first_part = false) {
    Lines out;
    for (const std::string& line : section) {
      if (first_part && line.starts_with(".Ss ")) break;
      if (line.starts_with(".It ")) out.push_back(line.substr(4));
    }
    return out;
  }

  Lines page_;
};

// ".It Fl H , Fl -host Ar HOST": mdoc's Fl writes the first dash.
std::string item_of(const OptionRow& row) {
  std::string text = "Fl " + std::regex_replace(all_spellings(row), std::regex(", -"), " , Fl ").substr(1);
  if (!row.argument.empty()) text += " Ar " + std::string(row.argument);
  return text;
}

TEST_F(Manual, OptionsAreThoseOfTheTableInItsOrder) {
  const Lines documented = items(section("OPTIONS"), true);
  Lines known;
  for (const OptionRow& row : option_table()) {
    if (row.group != OptionGroup::kInformation) known.push_back(item_of(row));
  }
  for (const OptionRow& row : option_table()) {
    if (row.group == OptionGroup::kInformation) known.push_back(item_of(row));
  }
  EXPECT_EQ(documented, known);
}

// The text of an option without its macros, in one line.
std::string words_of_item(const Lines& section, const std::string& item) {
  std::string text;
  bool inside = false;
  for (std::string line : section) {
    if (line.starts_with(".It ") || line.starts_with(".El")) inside = line == ".It " + item;
    if (!inside) continue;
    line = std::regex_replace(line, std::regex("^\\.[A-Z][a-z] "), "");
    text += line + " ";
  }
  return std::regex_replace(text, std::regex(" +([.,])"), "$1");
}

TEST_F(Manual, DefaultsAreThoseOfTheTable) {
  const Lines options = section("OPTIONS");
  for (const OptionRow& row : option_table()) {
    const std::string text = words_of_item(options, item_of(row));
    const bool has_default = !row.argument.empty() && !row.fallback.empty();
    const std::string sentence = "The default is " + std::string(row.fallback);
    EXPECT_EQ(text.find(has_default ? sentence : "The default is") != std::string::npos, has_default)
        << row.name << ": " << text;
  }
}

TEST_F(Manual, OptionsOfMpirunAreThoseOfTheirTable) {
  Lines documented = section("COMPATIBILITY");
  documented.erase(documented.begin(), std::find(documented.begin(), documented.end(), ".Bl -tag -width Ds") + 1);
  documented.erase(std::find(documented.begin(), documented.end(), ".El"), documented.end());
  EXPECT_EQ(documented, mpirun_options_mdoc());
}

TEST_F(Manual, DiagnosticsHaveEveryMessageIdOnce) {
  const Lines documented = items(section("DIAGNOSTICS"));
  std::multiset<std::string> names(documented.begin(), documented.end());
  std::multiset<std::string> known;
  for (const MessageKind& kind : message_kinds()) known.insert(kind.name);
  EXPECT_EQ(names, known);
}

TEST_F(Manual, ExitStatusHasEveryCode) {
  const Lines rows = items(section("EXIT STATUS"));
  const std::set<std::string> documented(rows.begin(), rows.end());
  for (const int code : {kExitOk, kExitWrongState, kExitUsage, kExitTimeout, kExitLauncher, kExitNotExecutable,
                         kExitNotFound, kExitReaderLeft, 128 + 1, 128 + 2, 128 + 15}) {
    EXPECT_TRUE(documented.count(std::to_string(code))) << code;
  }
  EXPECT_TRUE(documented.count("Ar status"));
  EXPECT_TRUE(documented.count("128 + Ar signal"));
  EXPECT_EQ(documented.size(), 13u);
}

}  // namespace
}  // namespace aiacc::launcher

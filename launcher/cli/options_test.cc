#include "launcher/cli/options.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <sstream>

#include "launcher/cli/options_table.h"

namespace aiacc::launcher {
namespace {

using Words = std::vector<std::string>;

// The words of a line; nothing here needs quoting.
Options parse(const std::string& line) {
  std::istringstream in(line);
  return parse_options(Words(std::istream_iterator<std::string>(in), {}));
}

std::string refusal(const std::string& line) {
  try {
    parse(line);
  } catch (const UsageError& error) {
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_EQ(error.message().find('\n'), std::string::npos) << "one sentence: " << error.message();
    return error.message();
  }
  ADD_FAILURE() << "accepted: " << line;
  return "";
}

void expect_refused(const std::string& line, const Words& parts) {
  const std::string said = refusal(line);
  for (const std::string& part : parts) EXPECT_NE(said.find(part), std::string::npos) << line << ": " << said;
}

TEST(Options, Defaults) {
  const Options o = parse("./train");
  EXPECT_EQ(o.ranks.value, 0);
  EXPECT_TRUE(o.hosts.value.empty());
  EXPECT_EQ(o.map_by.value, MapBy::kSlot);
  EXPECT_EQ(o.bind_to.value, BindTo::kAuto);
  EXPECT_EQ(o.timeout.value, Duration::zero());
  EXPECT_EQ(o.kill_grace.value, std::chrono::seconds(30));
  EXPECT_FALSE(o.oversubscribe.value || o.tag_output.value || o.dry_run.value || o.isolate.value);
  EXPECT_EQ(o.input_rank.value, 0);
  EXPECT_FALSE(o.ranks.given() || o.kill_grace.given());
}

TEST(Options, SpellingsAreEqual) {
  for (const char* line : {"-np 4 a", "-n 4 a", "--np 4 a", "--n 4 a", "-np=4 a", "--np=4 a", "-np 4 -- a"}) {
    const Options o = parse(line);
    EXPECT_EQ(o.ranks.value, 4) << line;
    EXPECT_EQ(o.ranks.source, Source::kFlag) << line;
    EXPECT_EQ(o.command, Words{"a"}) << line;
  }
  for (const char* line : {"--bind-to core a", "-bind-to core a", "--bind_to core a", "-bind_to=core a"}) {
    EXPECT_EQ(parse(line).bind_to.value, BindTo::kCore) << line;
  }
  EXPECT_EQ(parse("-N 3 a").ranks_per_host.value, 3);
  EXPECT_EQ(parse("-ppn 3 a").ranks_per_host.value, 3);
  EXPECT_EQ(parse("--bind-to socket a").bind_to.value, BindTo::kPackage);
}

TEST(Options, TheProgramBeginsAtTheFirstOtherWord) {
  EXPECT_EQ(parse("-np 2 python train.py -np 7 --help").command, (Words{"python", "train.py", "-np", "7", "--help"}));
  EXPECT_EQ(parse("-np 2 -- -odd-name -x").command, (Words{"-odd-name", "-x"}));
  EXPECT_EQ(parse("--tag-output - -np").command, (Words{"-", "-np"}));
}

TEST(Options, Everything) {
  const Options o = parse(
      "-np 6 -H localhost:4,[::1]:2 -H 127.0.0.1 -N 6 --oversubscribe -x A=b=c -x B -x NCCL_* -wdir /tmp --map-by numa "
      "--bind-to none --report-bindings --tag-output --min-np 5 --max-num-proc 6 --reset-limit 0 --timeout 1.5 "
      "--kill-grace 0 --dry-run --compat-env "
      "ompi,horovod "
      "--provide perseus,horovod,perseus --servers 2 --isolate p");
  EXPECT_EQ(o.hosts.value, (std::vector<HostSpec>{{"localhost", 4}, {"::1", 2}, {"127.0.0.1", 1}}));
  EXPECT_EQ(o.forward.value, (std::vector<Forward>{{"A", "b=c"}, {"B", {}}, {"NCCL_*", {}}}));
  EXPECT_EQ(o.wdir.value, "/tmp");
  EXPECT_EQ(o.map_by.value, MapBy::kNuma);
  EXPECT_EQ(o.min_ranks.value, 5);
  EXPECT_EQ(o.max_ranks.value, 6);
  EXPECT_EQ(o.reset_limit.value, 0);
  EXPECT_EQ(o.timeout.value, std::chrono::milliseconds(1500));
  EXPECT_EQ(o.kill_grace.value, Duration::zero());
  EXPECT_TRUE(o.compat_env.value.horovod && o.compat_env.value.ompi);
  EXPECT_EQ(o.provide.value, (Words{"perseus", "horovod"}));
  EXPECT_EQ(o.servers.value, 2);
  EXPECT_TRUE(o.oversubscribe.value && o.report_bindings.value && o.tag_output.value && o.dry_run.value &&
              o.isolate.value);
  EXPECT_TRUE(parse("-x EMPTY= p").forward.value[0].value == "");
  EXPECT_EQ(parse("-H ::1 p").hosts.value[0], (HostSpec{"::1", 1}));
  EXPECT_TRUE(parse("--isolate --isolate p").isolate.value);
}

TEST(Options, HelpAndVersionNeedNoProgram) {
  EXPECT_EQ(parse("--help").action, Options::Action::kHelp);
  EXPECT_EQ(parse("-h -np 4").action, Options::Action::kHelp);
  EXPECT_EQ(parse("-np 4 --version").action, Options::Action::kVersion);
  EXPECT_EQ(parse("./a --help").action, Options::Action::kRun);
}

TEST(Options, UnknownOnesNameTheNearest) {
  expect_refused("--hots a ./p", {"--hots", "--host"});
  expect_refused("-nq 4 ./p", {"-nq", "-np"});
  expect_refused("--over-subscribe ./p", {"--over-subscribe", "--oversubscribe"});
  expect_refused("--hostfil h ./p", {"--hostfil", "--hostfile"});
  expect_refused("--tagoutput=3 ./p", {"--tagoutput;", "--tag-output"});
  expect_refused("--- ./p", {"---"});
}

TEST(Options, BadNumbers) {
  for (const char* bad : {"0", "-1", "x", "4x", "1.5", "+4", "99999999999999", "100001", "0x4"}) {
    expect_refused(std::string("-np ") + bad + " ./p", {"-np", std::string("'") + bad + "'", "1"});
    expect_refused(std::string("-N ") + bad + " ./p", {"-N", bad});
  }
  for (const char* bad : {"-1", "x", "1s", "inf", "nan", "1e300"}) {
    expect_refused(std::string("--timeout ") + bad + " ./p", {"--timeout", "seconds", bad});
    expect_refused(std::string("--kill-grace ") + bad + " ./p", {"--kill-grace", "seconds", bad});
  }
}

TEST(Options, WhoReadsStandardInput) {
  EXPECT_EQ(parse("--stdin 3 ./p").input_rank.value, 3);
  EXPECT_EQ(parse("-stdin=none ./p").input_rank.value, kNoRank);
  for (const char* bad : {"-1", "all", "1,2", "0x1", "100000"}) {
    expect_refused(std::string("--stdin ") + bad + " ./p", {"--stdin", "one rank, or none", bad});
  }
}

TEST(Options, MissingAndUnwantedValues) {
  expect_refused("-np", {"-np needs a value"});
  expect_refused("-np --tag-output ./p", {"-np needs a value"});
  expect_refused("-np -- ./p", {"-np needs a value"});
  expect_refused("-np= ./p", {"-np needs a value"});
  expect_refused("--tag-output=yes ./p", {"--tag-output", "no value", "yes"});
  expect_refused("-np 2 -n 4 ./p", {"-np", "twice"});
  expect_refused("--wdir a --wd b ./p", {"--wdir", "twice"});
  expect_refused("-H a --hostfile b ./p", {"--host ", "--hostfile"});
}

TEST(Options, MissingProgram) {
  expect_refused("", {"no program"});
  expect_refused("-np 4", {"no program"});
  expect_refused("-np 4 --", {"no program"});
  EXPECT_THROW(parse_options(Words{"-np", "2", ""}), UsageError);
}

TEST(Options, BadHosts) {
  for (const char* bad : {"a:0", "a:-1", "a:x", "a:", ":4", "[::1", "[::1]4", "[]:2", "a b", "a;b", "a,,b", ",", "a:4,",
                          "@h", "u@", "-oProxyCommand=x", "-l@h", "a b@h"}) {
    try {
      parse_options(Words{"-H", bad, "./p"});
      ADD_FAILURE() << "accepted: " << bad;
    } catch (const UsageError& error) {
      EXPECT_EQ(error.id(), MessageId::kHosts) << bad;
    }
  }
}

TEST(Options, BadVariablesAndChoices) {
  for (const char* bad : {"=x", "A*=1", "A*B", "A B"}) {
    EXPECT_THROW(parse_options(Words{"-x", bad, "./p"}), UsageError) << bad;
  }
  expect_refused("--bind-to cor ./p", {"--bind-to", "auto, core, numa, package or none", "'cor'", "nearest is core"});
  expect_refused("--map-by nod ./p", {"--map-by", "slot, node, core, numa or package", "nearest is node"});
  expect_refused("--map-by none ./p", {"--map-by"});
  expect_refused("--compat-env horovd ./p", {"--compat-env", "horovod"});
  expect_refused("--provide horovd ./p", {"--provide takes gloo, horovod or perseus, not 'horovd'"});
}

TEST(Options, OriginsAreShown) {
  const std::string text = describe_options(parse("-np 4 -x TOKEN=secret --timeout 90 p"));
  std::istringstream lines(text);
  std::set<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    names.insert(name);
    const bool given = name == "-np" || name == "--export" || name == "--timeout";
    EXPECT_NE(line.find(given ? "command line" : "default"), std::string::npos) << line;
  }
  EXPECT_TRUE(names.count("--kill-grace") && names.count("--bind-to") && names.count("-np"));
  EXPECT_EQ(text.find("secret"), std::string::npos) << text;
}

TEST(Options, EveryRowOfTheTableIsShownWhenGiven) {
  const Options o = parse(
      "-np 1 -H localhost -N 1 --oversubscribe -x A --wdir / --map-by slot --bind-to auto --report-bindings "
      "--tag-output "
      "--min-np 1 --max-np 1 --reset-limit 0 --timeout 1 --kill-grace 1 --dry-run --compat-env ompi --provide horovod "
      "--servers 1 --isolate --launch-agent "
      "enter --stdin "
      "none --quiet p");
  const std::string shown = describe_options(o) + describe_options(parse("--hostfile hosts p")) +
                            describe_options(parse("--host-discovery-script list --min-np 1 p"));
  for (const OptionRow& row : option_table()) {
    const std::string_view name = row.name;
    if (row.group == OptionGroup::kInformation) continue;
    EXPECT_NE(shown.find("  " + spelled(name) + " "), std::string::npos) << name;
  }
}

TEST(OptionTable, NamesAreUniqueAndHelpIsComplete) {
  std::set<std::string> seen;
  const std::string help = help_text();
  for (const OptionRow& row : option_table()) {
    std::istringstream names(std::string(row.name) + " " + std::string(row.aliases));
    for (std::string name; names >> name;) {
      EXPECT_TRUE(seen.insert(name).second) << name;
      EXPECT_EQ(find_option(name), &row) << name;
    }
    EXPECT_NE(help.find("  " + all_spellings(row)), std::string::npos) << row.name;
    EXPECT_FALSE(row.help.empty());
    EXPECT_EQ(row.help.back(), '.') << row.help;
  }
}

TEST(OptionTable, HelpFitsAScreen) {
  std::istringstream lines(help_text());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 90u) << line;
  EXPECT_LE(count, 70);
}

TEST(Failure, TableIsInTheOrderOfItsEnumeration) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < message_kinds().size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(message_kinds()[i].id), i) << message_kinds()[i].name;
    EXPECT_TRUE(names.insert(message_kinds()[i].name).second) << message_kinds()[i].name;
  }
  EXPECT_EQ(message_kinds().size(), static_cast<std::size_t>(MessageId::kInternal) + 1);
  EXPECT_EQ(message_line(MessageId::kSlots, "no"), "aiaccrun: no [AR-SLOTS]");
  EXPECT_EQ(message_line(MessageId::kHosts, std::string_view("'a\0b'\n", 6)), R"(aiaccrun: 'a\x00b'\x0a [AR-HOSTS])");
}

}  // namespace
}  // namespace aiacc::launcher

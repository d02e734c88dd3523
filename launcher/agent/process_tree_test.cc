#include "launcher/agent/process_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <set>

#include "base/task/test_loop.h"

namespace aiacc::launcher {
namespace {

using namespace std::chrono_literals;

// A process table that implements only what these functions use.
class TableHost final : public io::Host {
 public:
  struct Entry {
    io::ProcessId parent, group;
    bool ignores_term = false;
    int lives_on = 0;  // as many signals KILL are sent before it is gone
  };
  std::map<io::ProcessId, Entry> table;
  std::map<io::ProcessId, std::vector<int>> signals;

  std::string name() const override { return "table"; }
  void adopt_orphans() override {}
  std::unique_ptr<io::Process> spawn(const io::SpawnSpec&) override { return nullptr; }
  std::vector<io::ProcessId> descendants() override {
    std::vector<io::ProcessId> all;
    for (auto& [id, entry] : table) all.push_back(id);
    return all;
  }
  void signal(io::ProcessId process, int number) noexcept override {
    signals[process].push_back(number);
    auto at = table.find(process);
    if (at == table.end()) return;
    if (number == SIGKILL && at->second.lives_on-- > 0) return;
    if (number == SIGKILL || (number == SIGTERM && !at->second.ignores_term)) table.erase(at);
  }
  char state(io::ProcessId) override { return 'S'; }
  std::optional<std::string> read_file(const std::string& path) override {
    for (auto& [id, entry] : table) {
      if (path != "/proc/" + std::to_string(id) + "/stat") continue;
      return std::to_string(id) + " (a (b) c) S " + std::to_string(entry.parent) + " " + std::to_string(entry.group) +
             " 1";
    }
    return std::nullopt;
  }
};

TEST(ProcessTree, ParsesNamesWithParenthesesAndRefusesOtherText) {
  auto stat = parse_process_stat("12 (a) R (b) T 7 9 1 0");
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->name, "a) R (b");
  EXPECT_EQ(stat->state, 'T');
  EXPECT_EQ(stat->parent, 7);
  EXPECT_EQ(stat->group, 9);
  for (const char* text : {"", "12", "12 (a", "12 (a)", "12 (a) ", "12 (a) R x y"})
    EXPECT_FALSE(parse_process_stat(text));
}

TEST(ProcessTree, FindsTheRankOfADescendant) {
  TableHost host;
  host.table = {{10, {5, 10}}, {11, {5, 11}}, {20, {11, 11}}, {21, {20, 11}}};
  const io::ProcessId ranks[] = {10, 11};
  EXPECT_EQ(find_ancestry(host, 10, ranks, 5).root, 0);
  EXPECT_EQ(find_ancestry(host, 21, ranks, 5).root, 1);
}

TEST(ProcessTree, KnowsAnOrphanByItsGroupAndNothingElse) {
  TableHost host;
  host.table = {{10, {5, 10}}, {20, {5, 10}}, {21, {20, 21}}, {22, {5, 22}}, {30, {1, 30}}};
  const io::ProcessId ranks[] = {10};
  EXPECT_EQ(find_ancestry(host, 20, ranks, 5).root, 0);
  EXPECT_EQ(find_ancestry(host, 21, ranks, 5).root, 0);
  EXPECT_EQ(find_ancestry(host, 22, ranks, 5).root, -1);
  EXPECT_TRUE(find_ancestry(host, 22, ranks, 5).adopted);
  EXPECT_FALSE(find_ancestry(host, 30, ranks, 5).adopted);
}

TEST(ProcessTree, TermFirstAndKillOnlyAfterTheGrace) {
  TestLoop loop;
  TableHost host;
  host.table = {{10, {5, 10}}, {11, {5, 11, true}}};
  Stop stop;
  auto were = loop.run(end_descendants(loop, host, 2s, stop));
  EXPECT_EQ(were.size(), 2u);
  EXPECT_EQ(host.signals[10], (std::vector<int>{SIGTERM, SIGCONT}));
  EXPECT_EQ(host.signals[11].back(), SIGKILL);
  EXPECT_GE(loop.now().time_since_epoch(), 2s);
  EXPECT_LT(loop.now().time_since_epoch(), 2s + 100ms);
}

TEST(ProcessTree, ReturnsAtOnceWhenAllObey) {
  TestLoop loop;
  TableHost host;
  host.table = {{10, {5, 10}}};
  Stop stop;
  loop.run(end_descendants(loop, host, 2s, stop));
  EXPECT_LT(loop.now().time_since_epoch(), 10ms);
}

TEST(ProcessTree, KillsAGroupAndWaitsUntilItIsGone) {
  TestLoop loop;
  TableHost host;
  host.table = {{10, {5, 10}}, {20, {5, 10, false, 3}}, {21, {20, 21}}};
  Stop stop;
  EXPECT_TRUE(loop.run(kill_group(loop, host, 10, 5s, stop)).empty());
  EXPECT_EQ(host.table.size(), 1u);
  EXPECT_TRUE(host.signals[21].empty());
  host.table = {{20, {5, 10, false, 1 << 20}}};
  EXPECT_EQ(loop.run(kill_group(loop, host, 10, 5s, stop)), (std::vector<io::ProcessId>{20}));
}

}  // namespace
}  // namespace aiacc::launcher

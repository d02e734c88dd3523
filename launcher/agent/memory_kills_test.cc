#include "launcher/agent/memory_kills.h"

#include <gtest/gtest.h>

#include <map>

namespace aiacc::launcher {
namespace {

class FileHost final : public io::Host {
 public:
  std::map<std::string, std::string> files;
  std::string name() const override { return "files"; }
  void adopt_orphans() override {}
  std::unique_ptr<io::Process> spawn(const io::SpawnSpec&) override { return nullptr; }
  std::vector<io::ProcessId> descendants() override { return {}; }
  void signal(io::ProcessId, int) noexcept override {}
  char state(io::ProcessId) override { return 'S'; }
  std::optional<std::string> read_file(const std::string& path) override {
    auto at = files.find(path);
    return at == files.end() ? std::nullopt : std::optional(at->second);
  }
};

TEST(MemoryKills, CountsFromTheBeginningOfTheJobInEitherVersion) {
  const std::pair<const char*, const char*> versions[] = {
      {"4:memory:/job\n0::/\n", "/sys/fs/cgroup/memory/job/memory.oom_control"},
      {"0::/job\n", "/sys/fs/cgroup/job/memory.events"}};
  for (const auto& [groups, file] : versions) {
    FileHost host;
    host.files["/proc/self/cgroup"] = groups;
    host.files["/proc/self/mountinfo"] = groups[0] == '4'
                                             ? "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                                             : "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    host.files[file] = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
    MemoryKills kills(host);
    EXPECT_FALSE(kills.take_one());
    host.files[file] = "oom 9\noom_kill 5\n";
    EXPECT_TRUE(kills.take_one()) << file;
    EXPECT_TRUE(kills.take_one());
    EXPECT_FALSE(kills.take_one());
  }
}

TEST(MemoryKills, IsSilentWhereThereIsNoCounter) {
  FileHost host;
  MemoryKills kills(host);
  EXPECT_FALSE(kills.take_one());
}

}  // namespace
}  // namespace aiacc::launcher

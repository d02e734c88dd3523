#include "launcher/plan/program.h"

#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace aiacc::launcher {
namespace {

namespace fs = std::filesystem;

class Program : public testing::Test {
 protected:
  Program() {
    std::string pattern = (fs::temp_directory_path() / "aiacc-program-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    for (const char* sub : {"bin", "other", "work", "bin/folder"}) fs::create_directory(folder_ / sub);
    file("bin/tool", 0755);
    file("bin/plain", 0644);
    file("other/plain", 0755);
    file("other/text", 0644);
    file("work/local", 0755);
    plan_.cwd = (folder_ / "work").string();
    plan_.environment = {"PATH=" + (folder_ / "bin").string() + ":" + (folder_ / "other").string()};
  }
  ~Program() override { fs::remove_all(folder_); }

  void file(const char* name, mode_t mode) {
    std::ofstream(folder_ / name) << "#!/bin/sh\n";
    chmod((folder_ / name).c_str(), mode);
  }

  std::string find(const std::string& program) { return find_program(program, plan_.cwd, plan_.environment); }

  LaunchError failure(const std::string& program) {
    try {
      const std::string path = find(program);
      ADD_FAILURE() << program << " found at " << path;
    } catch (const LaunchError& error) {
      EXPECT_EQ(error.message().find('\n'), std::string::npos);
      return error;
    }
    return {MessageId::kInternal, 0, ""};
  }

  fs::path folder_;
  Plan plan_;
};

TEST_F(Program, ByPathOfTheRanks) {
  EXPECT_EQ(find("tool"), (folder_ / "bin/tool").string());
  EXPECT_EQ(find("plain"), (folder_ / "other/plain").string()) << "what cannot be executed is passed over";
}

TEST_F(Program, WithASlashFromTheirDirectory) {
  EXPECT_EQ(find("./local"), (folder_ / "work/local").string());
  EXPECT_EQ(find("../bin/tool"), (folder_ / "work/../bin/tool").string());
  EXPECT_EQ(find((folder_ / "bin/tool").string()), (folder_ / "bin/tool").string());
}

TEST_F(Program, EmptyEntryOfPathIsTheirDirectory) {
  plan_.environment = {"PATH=/nowhere:"};
  EXPECT_EQ(find("local"), (folder_ / "work/local").string());
}

TEST_F(Program, DefaultPathWhenUnset) {
  plan_.environment = {};
  EXPECT_TRUE(find("sh").ends_with("/sh"));
}

TEST_F(Program, NotFoundIs127) {
  EXPECT_EQ(failure("missing").exit_code(), 127);
  EXPECT_EQ(failure("./missing").exit_code(), 127);
  EXPECT_EQ(failure("/no/such/thing").id(), MessageId::kProgram);
  EXPECT_NE(failure("local").message().find("./local"), std::string::npos) << "it stands in the working directory";
}

TEST_F(Program, AScriptOfTheWorkingDirectoryIsStartedByItsInterpreter) {
  file("work/train.py", 0644);
  EXPECT_NE(failure("train.py").message().find("no permission to be executed: write python train.py"),
            std::string::npos);
  EXPECT_NE(failure("./train.py").message().find("chmod +x it, or write python ./train.py"), std::string::npos);
  file("work/train.sh", 0644);
  EXPECT_NE(failure("train.sh").message().find("start it by its interpreter"), std::string::npos);
  fs::create_directory(folder_ / "work/data");
  EXPECT_EQ(failure("data").message().find("working directory"), std::string::npos) << "it is no program";
}

TEST_F(Program, ALongPathIsShortened) {
  plan_.environment = {"PATH=/a"};
  for (int i = 0; i < 30; ++i) plan_.environment[0] += ":/no/such/folder/of/programs";
  EXPECT_NE(
      failure("missing").message().find("(/a:/no/such/folder/of/programs:/no/such/folder/of/programs:..., 31 folders)"),
      std::string::npos)
      << failure("missing").message();
  EXPECT_LE(failure("missing").message().size(), 120u);
}

TEST_F(Program, NotExecutableIs126) {
  EXPECT_EQ(failure("text").exit_code(), 126);
  EXPECT_EQ(failure("../other/text").exit_code(), 126);
  EXPECT_NE(failure("../bin").message().find("directory"), std::string::npos);
  EXPECT_EQ(failure("folder").exit_code(), 126);
}

// The files are looked up as another user, so the test also holds when root runs it.
TEST_F(Program, AFolderThatMayNotBeEnteredHoldsNothing) {
  chmod(folder_.c_str(), 0755);
  chmod((folder_ / "other").c_str(), 0);
  const int self = setfsuid(65534);
  const int code = failure("text").exit_code();
  const std::string seen = failure("text").message();
  setfsuid(static_cast<uid_t>(self));
  chmod((folder_ / "other").c_str(), 0755);
  EXPECT_EQ(code, 127) << seen;
}

TEST_F(Program, MissingDirectoryIsUsage) {
  plan_.cwd = (folder_ / "gone").string();
  EXPECT_EQ(failure("tool").exit_code(), 2);
  EXPECT_EQ(failure("tool").id(), MessageId::kWdir);
  plan_.cwd = (folder_ / "bin/tool").string();
  EXPECT_EQ(failure("tool").id(), MessageId::kWdir);
}

}  // namespace
}  // namespace aiacc::launcher

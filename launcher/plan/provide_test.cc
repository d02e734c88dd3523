#include "launcher/plan/provide.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace aiacc::launcher {
namespace {

namespace fs = std::filesystem;

class Provide : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "aiacc-provide-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    fs::create_directories(root_ / "bin");
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string package(const std::string& below, const std::string& name) const {
    const fs::path folder = root_ / below / name;
    fs::create_directories(folder / name);
    std::ofstream(folder / name / "__init__.py") << "\n";
    return folder.string();
  }
  // PYTHONPATH of the ranks.
  std::string path_of(const std::vector<std::string>& names, const std::vector<std::string>& environment,
                      const std::string& program = "bin/aiaccrun") const {
    Environment all(environment);
    provide_packages(names, (root_ / program).string(), "h1", all);
    return all.has("PYTHONPATH") ? std::string(all.get("PYTHONPATH")) : "none";
  }

  fs::path root_;
};

TEST_F(Provide, ComesBeforeTheUsersPath) {
  const std::string horovod = package("share/aiacc/python/aiacc/provide", "horovod");
  const std::string perseus = package("share/aiacc/python/aiacc/provide", "perseus");
  EXPECT_EQ(path_of({"horovod"}, {}), horovod);
  EXPECT_EQ(path_of({"horovod"}, {"PYTHONPATH="}), horovod);
  EXPECT_EQ(path_of({"perseus", "horovod"}, {"A=b", "PYTHONPATH=/x:/y"}), perseus + ":" + horovod + ":/x:/y");
}

TEST_F(Provide, AFolderMayHoldWhatPythonRunsAtItsStart) {
  const fs::path gloo = root_ / "share/aiacc/python/aiacc/provide/gloo";
  fs::create_directories(gloo);
  std::ofstream(gloo / "sitecustomize.py") << "\n";
  EXPECT_EQ(path_of({"gloo"}, {"PYTHONPATH=/x"}), gloo.string() + ":/x");
}

TEST_F(Provide, IsFoundInAWheel) {
  const std::string horovod = package("aiacc/provide", "horovod");
  EXPECT_EQ(path_of({"horovod"}, {}, "aiacc/_native/bin/aiaccrun"), horovod);
}

TEST_F(Provide, ChangesNothingWithoutNames) {
  EXPECT_EQ(path_of({}, {}), "none");
  EXPECT_EQ(path_of({}, {"PYTHONPATH="}), "");
}

TEST_F(Provide, AHostThatLacksAPackageIsNamed) {
  fs::create_directories(root_ / "share/aiacc/python/aiacc/provide/horovod");  // without what is in it
  try {
    path_of({"horovod"}, {});
    FAIL();
  } catch (const LaunchError& error) {
    EXPECT_EQ(error.id(), MessageId::kProvide);
    EXPECT_EQ(error.exit_code(), kExitLauncher);
    EXPECT_NE(error.message().find("host h1 has no package horovod"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace aiacc::launcher

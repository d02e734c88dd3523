#include "base/whole_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace aiacc {
namespace {

namespace fs = std::filesystem;

class WholeFile : public testing::Test {
 protected:
  WholeFile() {
    std::string pattern = (fs::temp_directory_path() / "whole.XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~WholeFile() override { fs::remove_all(folder_); }

  std::string at(const std::string& name) const { return folder_ / name; }
  static void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string text_of(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::size_t files() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {})); }

  fs::path folder_;
};

TEST_F(WholeFile, MakesOneAndReplacesOne) {
  EXPECT_EQ(check_writable(at("new")), 0);
  EXPECT_EQ(files(), 0u) << "the look leaves nothing";
  EXPECT_EQ(write_whole_file(at("new"), "first"), 0);
  EXPECT_EQ(check_writable(at("new")), 0);
  EXPECT_EQ(text_of(at("new")), "first") << "the look changes nothing";
  EXPECT_EQ(write_whole_file(at("new"), "2"), 0);
  EXPECT_EQ(text_of(at("new")), "2");
  EXPECT_EQ(files(), 1u);
}

TEST_F(WholeFile, KeepsLinkAndMode) {
  put(at("old"), "old");
  fs::permissions(at("old"), fs::perms(0640));
  fs::create_symlink("old", at("link"));
  EXPECT_EQ(write_whole_file(at("link"), "new"), 0);
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_EQ(text_of(at("old")), "new");
  EXPECT_EQ(fs::status(at("old")).permissions(), fs::perms(0640));
}

TEST_F(WholeFile, NamesThatAreNoGoodAreKnownBefore) {
  EXPECT_EQ(check_writable(at("none/new")), ENOENT);
  EXPECT_EQ(write_whole_file(at("none/new"), "x"), ENOENT);
  EXPECT_EQ(check_writable(folder_), EISDIR);
  EXPECT_EQ(write_whole_file(folder_, "x"), EISDIR);
  put(at("file"), "old");
  EXPECT_EQ(check_writable(at("file/new")), ENOTDIR);
  EXPECT_EQ(write_whole_file(at("file/new"), "x"), ENOTDIR);
  EXPECT_EQ(text_of(at("file")), "old");
}

TEST_F(WholeFile, WhatIsNoFileIsWrittenTo) {
  EXPECT_EQ(check_writable("/dev/null"), 0);
  EXPECT_EQ(write_whole_file("/dev/null", "x"), 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(write_whole_file("/dev/full", "x"), ENOSPC);
}

// With this limit on a file's size, writes fail in the middle, as on a full disk.
class NoRoom {
 public:
  explicit NoRoom(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~NoRoom() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(WholeFile, HalfOfOneNeverRemains) {
  put(at("old"), "old");
  {
    const NoRoom limit(1000);
    EXPECT_EQ(write_whole_file(at("old"), std::string(2000, 'x')), EFBIG);
    EXPECT_EQ(write_whole_file(at("new"), std::string(2000, 'x')), EFBIG);
  }
  EXPECT_EQ(text_of(at("old")), "old");
  EXPECT_EQ(files(), 1u);
}

// Root may write everything, so the test runs as another user meanwhile.
class OrdinaryUser {
 public:
  explicit OrdinaryUser(const fs::path& folder) : root_(geteuid() == 0) {
    if (root_ && (chown(folder.c_str(), kNobody, kNobody) != 0 || seteuid(kNobody) != 0))
      throw std::runtime_error("setuid");
  }
  ~OrdinaryUser() {
    if (root_) {
      EXPECT_EQ(seteuid(0), 0);
    }
  }
  OrdinaryUser(const OrdinaryUser&) = delete;
  OrdinaryUser& operator=(const OrdinaryUser&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;
  const bool root_;
};

TEST_F(WholeFile, AFileThatMayNotBeWrittenIsNotReplaced) {
  put(at("old"), "old");
  fs::permissions(at("old"), fs::perms(0444));
  const OrdinaryUser user(folder_);
  EXPECT_EQ(check_writable(at("old")), EACCES);
  EXPECT_EQ(write_whole_file(at("old"), "new"), EACCES);
  EXPECT_EQ(text_of(at("old")), "old");
}

}  // namespace
}  // namespace aiacc

#include "base/wire/secret_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace aiacc::wire {
namespace {

class SecretFile : public testing::Test {
 protected:
  SecretFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "aiacc-secret-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~SecretFile() override { std::filesystem::remove_all(folder_); }
  std::string with(const std::string& bytes, unsigned mode = 0600) {
    const std::string path = folder_ / "secret";
    std::ofstream(path, std::ios::binary) << bytes;
    ::chmod(path.c_str(), static_cast<mode_t>(mode));
    return path;
  }
  static std::string refusal(const std::string& path) {
    try {
      read_secret_file("AIACC_SECRET_FILE", path);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_TRUE(error.message().starts_with("AIACC_SECRET_FILE=" + path + ": ")) << error.message();
      return error.message();
    }
  }
  std::filesystem::path folder_;
};

const std::string kGood = "one secret of thirty two letters";

TEST_F(SecretFile, IsReadIfItIsItsOwnersAlone) {
  EXPECT_EQ(read_secret_file("X", with(kGood)), Secret::from(kGood));
  EXPECT_EQ(read_secret_file("X", with(kGood, 0400)), Secret::from(kGood));
}

TEST_F(SecretFile, OthersMayNotReadOrWriteIt) {
  for (const unsigned mode : {0640u, 0604u, 0620u, 0602u, 0644u}) {
    const std::string sentence = refusal(with(kGood, mode));
    char digits[8];
    std::snprintf(digits, sizeof digits, "%04o", mode);
    EXPECT_NE(sentence.find(std::string("mode is ") + digits), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("chmod 600 "), std::string::npos);
  }
}

TEST_F(SecretFile, AnotherUsersIsRefused) {
  const std::string path = with(kGood);
  if (::chown(path.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "only root may give files away";
  EXPECT_NE(refusal(path).find("the file belongs to user 65534, and this process to user"), std::string::npos);
}

TEST_F(SecretFile, LengthsAreNamed) {
  EXPECT_NE(refusal(with("")).find("has 0 bytes and a secret 32"), std::string::npos);
  EXPECT_NE(refusal(with(kGood + "\n")).find("has 33 bytes and a secret 32"), std::string::npos);
  EXPECT_NE(refusal(with(std::string(31, 's'))).find("has 31 bytes"), std::string::npos);
}

TEST_F(SecretFile, BytesThatCanBeGuessedAreRefused) {
  const auto with_different = [&](int count) {
    std::string bytes;
    for (int i = 0; i < 32; ++i) bytes += static_cast<char>('a' + i % count);
    return with(bytes);
  };
  EXPECT_NE(refusal(with(std::string(32, '\0'))).find("have 1 different values, which can be guessed"),
            std::string::npos);
  EXPECT_NE(refusal(with(std::string(32, 'x'))).find("have 1 different values"), std::string::npos);
  EXPECT_NE(refusal(with_different(7)).find("have 7 different values"), std::string::npos);
  EXPECT_FALSE(read_secret_file("X", with_different(8)).none());
}

TEST_F(SecretFile, WhatIsNoFileIsSaid) {
  EXPECT_NE(refusal(folder_ / "missing").find("make one with (umask 077;"), std::string::npos);
  EXPECT_NE(refusal(folder_.string()).find("no plain file"), std::string::npos);
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(refusal(pipe).find("no plain file"), std::string::npos);
}

TEST_F(SecretFile, TheCommandInTheSentenceMakesOne) {
  const std::string command = "cd " + folder_.string() + " && " + std::string(kMakeSecretFile);
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_FALSE(read_secret_file("X", folder_ / "aiacc.secret").none());
}

}  // namespace
}  // namespace aiacc::wire

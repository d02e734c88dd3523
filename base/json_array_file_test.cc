#include "base/json_array_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/json.h"

namespace aiacc {
namespace {

class JsonArrayFiles : public testing::Test {
 protected:
  ~JsonArrayFiles() override { ::unlink(path.c_str()); }
  Json read() const {
    std::ifstream file(path);
    return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  const std::string path = testing::TempDir() + "json_array_file_test." + std::to_string(::getpid());
};

TEST_F(JsonArrayFiles, IsWholeAfterEachAppend) {
  { std::ofstream(path) << "something longer that was there before, and is replaced"; }
  JsonArrayFile file(path);
  EXPECT_TRUE(read().items().empty());
  file.append("1,\n{\"a\": [2]}");
  EXPECT_EQ(read().text(), R"([1,{"a":[2]}])");
  file.append("");
  file.append("3");
  EXPECT_EQ(read().items().size(), 3u);
  EXPECT_EQ(read().items()[2].as_integer(), 3);
}

TEST_F(JsonArrayFiles, WhatCannotBeWrittenIsOneSentence) {
  const auto message = [](const std::string& at) -> std::string {
    try {
      JsonArrayFile file(at);
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  };
  EXPECT_NE(message(path + "/none").find("cannot write to " + path + "/none"), std::string::npos);
  EXPECT_EQ(message("/dev/null"), "/dev/null is not a regular file: a timeline needs one");
}

}  // namespace
}  // namespace aiacc

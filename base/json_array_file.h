// JsonArrayFile: a file with one JSON array that grows. It is whole JSON after each append, so it can be read while it grows,
// and after its writer was killed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace aiacc {

class JsonArrayFile {
 public:
  // Replaces what the file had. Throws kSystem with the path, kInvalidArgument if it is no regular file.
  explicit JsonArrayFile(const std::string& path);

  // `elements`: JSON values with a comma between each two. One write, over the end of the array. Throws kSystem; the file then
  // keeps what it had, and perhaps more.
  void append(std::string_view elements);
  const std::string& path() const noexcept { return path_; }

 private:
  void write(std::string_view text);

  std::string path_;
  Fd file_;
  std::int64_t end_ = 0;  // where the end of the array begins
  bool empty_ = true;
};

}  // namespace aiacc

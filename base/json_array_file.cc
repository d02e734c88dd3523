#include "base/json_array_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace aiacc {
namespace {

constexpr std::string_view kBegin = "[", kEnd = "\n]\n";

}  // namespace

JsonArrayFile::JsonArrayFile(const std::string& path) : path_(path) {
  struct stat status {};
  // A FIFO without a reader would block open().
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw Error(Code::kInvalidArgument, fmt::format("{} is not a regular file: a timeline needs one", path));
  file_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file_) throw system_error(fmt::format("cannot write to {}", path), errno);
  write(fmt::format("{}{}", kBegin, kEnd));
  end_ = kBegin.size();
}

void JsonArrayFile::append(std::string_view elements) {
  if (elements.empty()) return;
  const std::string text = fmt::format("{}\n{}{}", empty_ ? "" : ",", elements, kEnd);
  write(text);
  end_ += static_cast<std::int64_t>(text.size() - kEnd.size());
  empty_ = false;
}

void JsonArrayFile::write(std::string_view text) {
  std::int64_t at = end_;
  while (!text.empty()) {
    const ssize_t written = ::pwrite(file_.get(), text.data(), text.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw system_error(fmt::format("cannot write to {}", path_), written < 0 ? errno : ENOSPC);
    at += written;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace aiacc

#include "base/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/fd.h"
#include "base/io/quiet_write.h"
#include "base/io/real_clock.h"

namespace aiacc {
namespace {

// The file that a path refers to.
struct Target {
  explicit Target(const std::string& path) : exists(stat(path.c_str(), &status) == 0) {
    std::error_code none;  // if it cannot be resolved, creating the temporary file reports why
    const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, none);
    name = none ? path : resolved.string();
  }
  bool regular() const noexcept { return S_ISREG(status.st_mode); }

  struct stat status {};
  bool exists;
  std::string name;  // without symbolic links, which are kept
};

// A temporary file in the folder of `target`. Hosts may share that folder, so a process id would not be a unique name.
struct TemporaryFile {
  explicit TemporaryFile(const Target& target) {
    std::array<std::byte, 8> random{};
    io::RealEntropy().fill(random);
    std::string own = ".aiacc-";
    for (const std::byte byte : random) own += fmt::format("{:02x}", static_cast<unsigned>(byte));
    name = std::filesystem::path(target.name).replace_filename(own).string();
    file.reset(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file) error = errno;
  }
  ~TemporaryFile() {
    if (error == 0 && !moved) ::unlink(name.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  std::string name;
  Fd file;
  int error = 0;
  bool moved = false;
};

int write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = io::write_without_sigpipe(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// A file that may not be written is not replaced either, although its folder may permit it.
int refusal(const Target& target, const std::string& path) noexcept {
  if (!target.exists) return 0;
  if (S_ISDIR(target.status.st_mode)) return EISDIR;
  return faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0 ? 0 : errno;
}

}  // namespace

int check_writable(const std::string& path) {
  const Target target(path);
  const int refused = refusal(target, path);
  if (refused != 0 || (target.exists && !target.regular())) return refused;
  return TemporaryFile(target).error;
}

int write_whole_file(const std::string& path, std::string_view text) {
  const Target target(path);
  if (const int refused = refusal(target, path); refused != 0) return refused;
  if (target.exists && !target.regular()) {
    const Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    return file ? write_all(file.get(), text) : errno;
  }
  TemporaryFile temporary(target);
  if (temporary.error != 0) return temporary.error;
  if (target.exists)
    (void)fchmod(temporary.file.get(), target.status.st_mode & 07777);  // some file systems have no modes
  if (const int error = write_all(temporary.file.get(), text); error != 0) return error;
  if (::close(temporary.file.release()) != 0)
    return errno;  // a network file system may report only here that it is full
  temporary.moved = std::rename(temporary.name.c_str(), target.name.c_str()) == 0;
  return temporary.moved ? 0 : errno;
}

void print_whole(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw system_error("cannot write to standard output", errno);
}

}  // namespace aiacc
